SELECT anon_1.id, anon_1.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s::BIGINT AND jobboard.name =
  %(p_name0)s::VARCHAR ORDER BY jobboard.priority, jobboard.id
 LIMIT 9) AS anon_1 UNION ALL SELECT anon_2.id, anon_2.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s::BIGINT AND jobboard.name =
  %(p_name1)s::VARCHAR ORDER BY jobboard.priority, jobboard.id
 LIMIT 9) AS anon_2;
WITH clock_jobboard AS MATERIALIZED
(SELECT CASE WHEN (txid_current() IS NOT NULL) THEN CAST(date_part('epoch', clock_timestamp()) * 1000000 AS BIGINT)
  END AS now),
seen_jobboard AS
(SELECT (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS event, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS gate),
picked_jobboard AS MATERIALIZED
(SELECT jobboard.id AS id, jobboard.uuid AS uuid, jobboard.name AS name, jobboard.job_group AS job_group,
  greatest(jobboard.token + %(token_2)s::BIGINT, (SELECT clock_jobboard.now
FROM clock_jobboard)) AS token
FROM jobboard
WHERE coalesce(jobboard.board, '') = %(p_board)s::VARCHAR AND coalesce(jobboard.state, '') = 'UNCLAIMED' AND
  jobboard.version <= %(p_readable)s::BIGINT AND jobboard.id = ANY (%(p_ids)s::BIGINT[]) AND (SELECT
  seen_jobboard.gate = %(p_gate)s::BIGINT AND (seen_jobboard.event <= CAST(date_part('epoch', statement_timestamp())
  * 1000000 AS BIGINT)) IS NOT true AS anon_6
FROM seen_jobboard) ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 FOR UPDATE OF jobboard SKIP LOCKED),
entered_jobboard AS
(UPDATE jobboard_sides SET value=(jobboard_sides.value || (SELECT convert_to(picked_jobboard.uuid || ' ' ||
  CAST(picked_jobboard.token AS TEXT) || ',', 'UTF8') AS convert_to_1
FROM picked_jobboard)), version=(jobboard_sides.version + 1) WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND
  jobboard_sides.kind = 'scope' AND jobboard_sides.place = (SELECT encode(sha256(convert_to(CASE WHEN
  %(p_per_group)s THEN picked_jobboard.name || chr(10) || picked_jobboard.job_group ELSE picked_jobboard.name END,
  'UTF8')), 'hex') AS encode_1
FROM picked_jobboard
WHERE %(p_rule_name)s::VARCHAR = picked_jobboard.name AND (NOT %(p_per_group)s OR picked_jobboard.job_group IS NOT
  NULL)) AND mod(length(jobboard_sides.value), 54) = 0 AND length(jobboard_sides.value) < %(p_most)s::BIGINT * 54
  RETURNING jobboard_sides.place),
taken_jobboard AS
(UPDATE jobboard SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s::INTEGER),
  token=greatest(jobboard.token + %(token_1)s::BIGINT, clock_jobboard.now), who=%(p_who)s::VARCHAR,
  keeper=%(p_keeper)s::VARCHAR, lock_until=(clock_jobboard.now + %(p_ttl)s::BIGINT), modified_on=clock_jobboard.now,
  wake_at=(clock_jobboard.now + %(p_ttl)s::BIGINT) FROM clock_jobboard WHERE jobboard.id = (SELECT
  picked_jobboard.id
FROM picked_jobboard
WHERE NOT (%(p_rule_name)s::VARCHAR = picked_jobboard.name AND (NOT %(p_per_group)s OR picked_jobboard.job_group IS
  NOT NULL)) OR (EXISTS (SELECT entered_jobboard.place
FROM entered_jobboard))) RETURNING jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key,
  jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token,
  jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, CAST(taken_jobboard.id AS TEXT) || ' ' ||
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
  taken_jobboard.retries, taken_jobboard.job_group, taken_jobboard.key_until, CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) AS anon_7, seen_jobboard.event, false AS anon_8, seen_jobboard.gate,
  NULL AS anon_9
FROM seen_jobboard LEFT OUTER JOIN taken_jobboard ON true;
