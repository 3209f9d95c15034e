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
taken_jobboard AS
(UPDATE jobboard SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s::INTEGER),
  token=greatest(jobboard.token + %(token_1)s::BIGINT, clock_jobboard.now), who=%(p_who)s::VARCHAR,
  keeper=%(p_keeper)s::VARCHAR, lock_until=(clock_jobboard.now + %(p_ttl)s::BIGINT), modified_on=clock_jobboard.now,
  wake_at=(clock_jobboard.now + %(p_ttl)s::BIGINT) FROM clock_jobboard WHERE jobboard.id = ANY (array((SELECT
  jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND (SELECT seen_jobboard.gate = %(p_gate)s::BIGINT AND (%(p_swept)s OR
  (seen_jobboard.event <= CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)) IS NOT true) AS
  anon_6
FROM seen_jobboard) ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 FOR UPDATE SKIP LOCKED))) RETURNING jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id,
  jobboard.key, jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts,
  jobboard.token, jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on,
  jobboard.errors, jobboard.retries, jobboard.job_group, jobboard.key_until),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, CAST(taken_jobboard.id AS TEXT) || ' ' ||
  CAST(taken_jobboard.token AS TEXT) AS anon_4, CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)
  AS anon_5
FROM taken_jobboard ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_8)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END)
 SELECT taken_jobboard.uuid, taken_jobboard.name, taken_jobboard.priority, taken_jobboard.id, taken_jobboard.key,
  taken_jobboard.version, taken_jobboard.posting, taken_jobboard.state, taken_jobboard.attempts,
  taken_jobboard.max_attempts, taken_jobboard.token, taken_jobboard.who, taken_jobboard.keeper,
  taken_jobboard.lock_until, taken_jobboard.created_on, taken_jobboard.modified_on, taken_jobboard.errors,
  taken_jobboard.retries, taken_jobboard.job_group, taken_jobboard.key_until, CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) AS anon_5, seen_jobboard.event, CASE WHEN (taken_jobboard.uuid IS NULL
  AND seen_jobboard.gate = %(p_gate)s::BIGINT) THEN (SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT ORDER BY jobboard.priority, jobboard.id
 LIMIT 1) IS NOT NULL ELSE false END AS anon_7, seen_jobboard.gate
FROM seen_jobboard LEFT OUTER JOIN taken_jobboard ON true;
BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at >= %(p_since)s::BIGINT AND jobboard.wake_at <=
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ORDER BY jobboard.wake_at
 LIMIT 100 FOR UPDATE SKIP LOCKED;
-- with many rows
UPDATE jobboard SET state=%(p_state)s::VARCHAR, attempts=%(p_attempts)s::INTEGER, token=%(p_token)s::BIGINT,
  who=%(p_who)s::VARCHAR, keeper=%(p_keeper)s::VARCHAR, lock_until=%(p_lock_until)s::BIGINT,
  modified_on=%(p_modified_on)s::BIGINT, errors=%(p_errors)s::VARCHAR, retries=%(p_retries)s::INTEGER,
  live_key=%(p_live_key)s::VARCHAR, wake_at=%(p_wake_at)s::BIGINT, returned=CASE WHEN (%(p_state)s::VARCHAR =
  'UNCLAIMED') THEN txid_current() END, gone_on=%(p_gone_on)s::BIGINT WHERE jobboard.id = %(p_id)s::BIGINT AND
  jobboard.token = %(p_was_token)s::BIGINT AND jobboard.state = %(p_was_state)s::VARCHAR;
COMMIT;
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
taken_jobboard AS
(UPDATE jobboard SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s::INTEGER),
  token=greatest(jobboard.token + %(token_1)s::BIGINT, clock_jobboard.now), who=%(p_who)s::VARCHAR,
  keeper=%(p_keeper)s::VARCHAR, lock_until=(clock_jobboard.now + %(p_ttl)s::BIGINT), modified_on=clock_jobboard.now,
  wake_at=(clock_jobboard.now + %(p_ttl)s::BIGINT) FROM clock_jobboard WHERE jobboard.id = ANY (array((SELECT
  jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND (SELECT seen_jobboard.gate = %(p_gate)s::BIGINT AND (%(p_swept)s OR
  (seen_jobboard.event <= CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)) IS NOT true) AS
  anon_6
FROM seen_jobboard) ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 FOR UPDATE SKIP LOCKED))) RETURNING jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id,
  jobboard.key, jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts,
  jobboard.token, jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on,
  jobboard.errors, jobboard.retries, jobboard.job_group, jobboard.key_until),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, CAST(taken_jobboard.id AS TEXT) || ' ' ||
  CAST(taken_jobboard.token AS TEXT) AS anon_4, CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)
  AS anon_5
FROM taken_jobboard ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_8)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END)
 SELECT taken_jobboard.uuid, taken_jobboard.name, taken_jobboard.priority, taken_jobboard.id, taken_jobboard.key,
  taken_jobboard.version, taken_jobboard.posting, taken_jobboard.state, taken_jobboard.attempts,
  taken_jobboard.max_attempts, taken_jobboard.token, taken_jobboard.who, taken_jobboard.keeper,
  taken_jobboard.lock_until, taken_jobboard.created_on, taken_jobboard.modified_on, taken_jobboard.errors,
  taken_jobboard.retries, taken_jobboard.job_group, taken_jobboard.key_until, CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) AS anon_5, seen_jobboard.event, CASE WHEN (taken_jobboard.uuid IS NULL
  AND seen_jobboard.gate = %(p_gate)s::BIGINT) THEN (SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT ORDER BY jobboard.priority, jobboard.id
 LIMIT 1) IS NOT NULL ELSE false END AS anon_7, seen_jobboard.gate
FROM seen_jobboard LEFT OUTER JOIN taken_jobboard ON true;
