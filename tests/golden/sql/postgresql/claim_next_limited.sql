BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT CAST(pg_advisory_xact_lock_shared(hashtextextended('jobboard ' || %(p_board)s::VARCHAR, 0)) AS VARCHAR) AS
  pg_advisory_xact_lock_shared_1;
SELECT clock.now, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_1, jobboard_sides.value, jobboard_sides.version
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND
  jobboard_sides.place = '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0';
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_2
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s::BIGINT ORDER BY
  jobboard.priority, jobboard.id
 LIMIT %(p_limit)s::INTEGER FOR UPDATE SKIP LOCKED;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …) ORDER BY jobboard_sides.place FOR UPDATE;
SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1;
UPDATE jobboard SET state=%(p_state)s::VARCHAR, attempts=%(p_attempts)s::INTEGER, token=%(p_token)s::BIGINT,
  who=%(p_who)s::VARCHAR, keeper=%(p_keeper)s::VARCHAR, lock_until=%(p_lock_until)s::BIGINT,
  modified_on=%(p_modified_on)s::BIGINT, errors=%(p_errors)s::VARCHAR, retries=%(p_retries)s::INTEGER,
  live_key=%(p_live_key)s::VARCHAR, wake_at=%(p_wake_at)s::BIGINT, returned=CASE WHEN (%(p_state)s::VARCHAR =
  'UNCLAIMED') THEN txid_current() END WHERE jobboard.id = %(p_id)s::BIGINT AND jobboard.token =
  %(p_was_token)s::BIGINT AND jobboard.state = %(p_was_state)s::VARCHAR;
INSERT INTO jobboard_sides (board, kind, place, key, value, until, version) VALUES (%(p_board)s::VARCHAR,
  %(p_kind)s::VARCHAR, %(p_place)s::VARCHAR, %(p_key)s::VARCHAR, %(p_value)s, coalesce(%(p_until)s::BIGINT,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) + %(p_ttl)s::BIGINT), %(p_version)s::BIGINT)
  ON CONFLICT DO NOTHING;
SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place = %(p_place)s::VARCHAR;
UPDATE jobboard_answers SET call=%(p_call)s::BIGINT, answer=%(p_answer)s::VARCHAR, stamp=CASE WHEN
  (jobboard_answers.stamp < CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT) THEN CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE
  jobboard_answers.stamp END WHERE jobboard_answers.handle = %(p_handle)s::VARCHAR AND jobboard_answers.slot =
  %(p_slot)s::BIGINT AND jobboard_answers.call < %(p_call)s::BIGINT;
COMMIT;
