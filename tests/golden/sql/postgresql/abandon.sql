BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s::VARCHAR, …) AND coalesce(jobboard.board, '') = %(p_board)s::VARCHAR FOR
  UPDATE;
UPDATE jobboard SET state=%(p_state)s::VARCHAR, attempts=%(p_attempts)s::INTEGER, token=%(p_token)s::BIGINT,
  who=%(p_who)s::VARCHAR, keeper=%(p_keeper)s::VARCHAR, lock_until=%(p_lock_until)s::BIGINT,
  modified_on=%(p_modified_on)s::BIGINT, errors=%(p_errors)s::VARCHAR, retries=%(p_retries)s::INTEGER,
  live_key=%(p_live_key)s::VARCHAR, wake_at=%(p_wake_at)s::BIGINT, returned=CASE WHEN (%(p_state)s::VARCHAR =
  'UNCLAIMED') THEN txid_current() END, gone_on=%(p_gone_on)s::BIGINT WHERE jobboard.id = %(p_id)s::BIGINT AND
  jobboard.token = %(p_was_token)s::BIGINT AND jobboard.state = %(p_was_state)s::VARCHAR;
SELECT pg_notify(%(p_channel)s::VARCHAR, %(p_board)s::VARCHAR) AS pg_notify_1;
UPDATE jobboard_answers SET call=%(p_call)s::BIGINT, answer=%(p_answer)s::VARCHAR, stamp=CASE WHEN
  (jobboard_answers.stamp < CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT) THEN CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE
  jobboard_answers.stamp END WHERE jobboard_answers.handle = %(p_handle)s::VARCHAR AND jobboard_answers.slot =
  %(p_slot)s::BIGINT AND jobboard_answers.call < %(p_call)s::BIGINT;
COMMIT;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …);
