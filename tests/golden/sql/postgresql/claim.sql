WITH clock_jobboard AS MATERIALIZED
(SELECT CASE WHEN (txid_current() IS NOT NULL) THEN CAST(date_part('epoch', clock_timestamp()) * 1000000 AS BIGINT)
  END AS now),
taken_jobboard AS
(UPDATE jobboard SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s::INTEGER),
  token=greatest(jobboard.token + %(token_1)s::BIGINT, clock_jobboard.now), who=%(p_who)s::VARCHAR,
  keeper=%(p_keeper)s::VARCHAR, lock_until=(clock_jobboard.now + %(p_ttl)s::BIGINT), modified_on=clock_jobboard.now,
  wake_at=(clock_jobboard.now + %(p_ttl)s::BIGINT) FROM clock_jobboard WHERE jobboard.uuid = %(p_uuid)s::VARCHAR AND
  coalesce(jobboard.board, '') = %(p_board)s::VARCHAR AND (jobboard.state = 'UNCLAIMED' OR jobboard.state =
  'SCHEDULED' AND jobboard.lock_until <= CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)) AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = 0 RETURNING jobboard.uuid,
  jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version, jobboard.posting, jobboard.state,
  jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who, jobboard.keeper, jobboard.lock_until,
  jobboard.created_on, jobboard.modified_on, jobboard.errors, jobboard.retries, jobboard.job_group,
  jobboard.key_until),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, CAST(taken_jobboard.uuid AS TEXT) || ' ' ||
  CAST(taken_jobboard.token AS TEXT) AS anon_4, CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)
  AS anon_5
FROM taken_jobboard ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_7)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END)
 SELECT taken_jobboard.uuid, taken_jobboard.name, taken_jobboard.priority, taken_jobboard.id, taken_jobboard.key,
  taken_jobboard.version, taken_jobboard.posting, taken_jobboard.state, taken_jobboard.attempts,
  taken_jobboard.max_attempts, taken_jobboard.token, taken_jobboard.who, taken_jobboard.keeper,
  taken_jobboard.lock_until, taken_jobboard.created_on, taken_jobboard.modified_on, taken_jobboard.errors,
  taken_jobboard.retries, taken_jobboard.job_group, taken_jobboard.key_until
FROM taken_jobboard;
