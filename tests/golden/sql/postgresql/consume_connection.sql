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
