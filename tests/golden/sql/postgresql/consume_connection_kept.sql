SELECT concat_ws('/', CAST(extract(epoch FROM pg_postmaster_start_time()) * 1000000 AS BIGINT), current_database(),
  CAST(to_regclass('jobboard') AS OID)) AS anon_1, current_setting(%(current_setting_2)s::VARCHAR) AS
  current_setting_1, CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s::VARCHAR, …) AND coalesce(jobboard.board, '') = %(p_board)s::VARCHAR FOR
  UPDATE;
DELETE FROM jobboard WHERE jobboard.uuid IN (%(p_uuids_1)s::VARCHAR, …) AND coalesce(jobboard.board, '') =
  %(p_board)s::VARCHAR;
INSERT INTO jobboard_outcomes (uuid, board, name, priority, id, key, version, posting, attempts, max_attempts,
  token, who, created_on, begun, modified_on, until, errors, retries, job_group, result, refused) VALUES
  (%(p_uuid)s::VARCHAR, %(p_board)s::VARCHAR, %(p_name)s::VARCHAR, %(p_priority)s::SMALLINT, %(p_id)s::BIGINT,
  %(p_key)s::VARCHAR, %(p_version)s::INTEGER, %(p_posting)s::VARCHAR, %(p_attempts)s::INTEGER,
  %(p_max_attempts)s::INTEGER, %(p_token)s::BIGINT, %(p_who)s::VARCHAR, %(p_created_on)s::BIGINT,
  %(p_begun)s::BIGINT, %(p_modified_on)s::BIGINT, %(p_until)s::BIGINT, %(p_errors)s::VARCHAR,
  %(p_retries)s::INTEGER, %(p_job_group)s::VARCHAR, %(p_result)s::VARCHAR, %(p_refused)s::VARCHAR) ON CONFLICT DO
  NOTHING;
