BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.live_key IN (%(p_keys_1)s::VARCHAR, …) FOR UPDATE;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …) ORDER BY jobboard_sides.place FOR UPDATE;
SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1;
-- with many rows
INSERT INTO jobboard (uuid, name, priority, key, version, posting, state, attempts, max_attempts, token, who,
  lock_until, created_on, modified_on, errors, retries, job_group, key_until, board, live_key, wake_at, gone_on)
  VALUES (%(p_uuid)s::VARCHAR, %(p_name)s::VARCHAR, %(p_priority)s::SMALLINT, %(p_key)s::VARCHAR,
  %(p_version)s::INTEGER, %(p_posting)s::VARCHAR, %(p_state)s::VARCHAR, %(p_attempts)s::INTEGER,
  %(p_max_attempts)s::INTEGER, %(p_token)s::BIGINT, %(p_who)s::VARCHAR, %(p_lock_until)s::BIGINT,
  %(p_created_on)s::BIGINT, %(p_modified_on)s::BIGINT, %(p_errors)s::VARCHAR, %(p_retries)s::INTEGER,
  %(p_job_group)s::VARCHAR, %(p_key_until)s::BIGINT, %(p_board)s::VARCHAR, %(p_live_key)s::VARCHAR,
  %(p_wake_at)s::BIGINT, %(p_gone_on)s::BIGINT) ON CONFLICT DO NOTHING;
SELECT jobboard.uuid, jobboard.id
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s::VARCHAR, …) AND coalesce(jobboard.board, '') = %(p_board)s::VARCHAR;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …);
SELECT pg_notify(%(p_channel)s::VARCHAR, %(p_board)s::VARCHAR) AS pg_notify_1;
UPDATE jobboard_answers SET call=%(p_call)s::BIGINT, answer=%(p_answer)s::VARCHAR, stamp=CASE WHEN
  (jobboard_answers.stamp < CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT) THEN CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE
  jobboard_answers.stamp END WHERE jobboard_answers.handle = %(p_handle)s::VARCHAR AND jobboard_answers.slot =
  %(p_slot)s::BIGINT AND jobboard_answers.call < %(p_call)s::BIGINT;
COMMIT;
