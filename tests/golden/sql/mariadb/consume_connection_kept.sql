SELECT concat_ws('/', uuid_short() >> 24, @@hostname, @@port, database()) AS anon_1;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (jobboard_uuid)
WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND jobboard.board = %(p_board)s FOR UPDATE;
DELETE jobboard FROM jobboard FORCE INDEX (jobboard_uuid) WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND
  jobboard.board = %(p_board)s;
INSERT INTO jobboard_outcomes (uuid, board, name, priority, id, `key`, version, posting, attempts, max_attempts,
  token, who, created_on, begun, modified_on, until, errors, retries, job_group, result, refused) VALUES
  (%(p_uuid)s, %(p_board)s, %(p_name)s, %(p_priority)s, %(p_id)s, %(p_key)s, %(p_version)s, %(p_posting)s,
  %(p_attempts)s, %(p_max_attempts)s, %(p_token)s, %(p_who)s, %(p_created_on)s, %(p_begun)s, %(p_modified_on)s,
  %(p_until)s, %(p_errors)s, %(p_retries)s, %(p_job_group)s, %(p_result)s, %(p_refused)s) ON DUPLICATE KEY UPDATE
  uuid = jobboard_outcomes.uuid;
