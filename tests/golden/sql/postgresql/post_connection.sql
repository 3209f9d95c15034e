SELECT concat_ws('/', CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT), current_database(),
  CAST(to_regclass('jobboard') AS OID)) AS anon_1, current_setting(%(current_setting_2)s::VARCHAR) AS
  current_setting_1, CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1;
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
SELECT pg_notify(%(p_channel)s::VARCHAR, %(p_board)s::VARCHAR) AS pg_notify_1;
