SELECT concat_ws('/', uuid_short() >> 24, @@hostname, @@port, database()) AS anon_1;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1;
INSERT INTO jobboard (uuid, name, priority, `key`, version, posting, state, attempts, max_attempts, token, who,
  lock_until, created_on, modified_on, errors, retries, job_group, key_until, board, live_key, wake_at, gone_on)
  VALUES (%(p_uuid)s, %(p_name)s, %(p_priority)s, %(p_key)s, %(p_version)s, %(p_posting)s, %(p_state)s,
  %(p_attempts)s, %(p_max_attempts)s, %(p_token)s, %(p_who)s, %(p_lock_until)s, %(p_created_on)s, %(p_modified_on)s,
  %(p_errors)s, %(p_retries)s, %(p_job_group)s, %(p_key_until)s, %(p_board)s, %(p_live_key)s, %(p_wake_at)s,
  %(p_gone_on)s) ON DUPLICATE KEY UPDATE id = jobboard.id;
SELECT jobboard.uuid, jobboard.id
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND jobboard.board = %(p_board)s;
