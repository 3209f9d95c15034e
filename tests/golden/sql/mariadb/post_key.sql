SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (jobboard_key)
WHERE jobboard.board = %(p_board)s AND jobboard.live_key IN (%(p_keys_1)s, …) FOR UPDATE;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides FORCE INDEX (PRIMARY)
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place IN
  (%(p_places_1)s, …) ORDER BY jobboard_sides.place FOR UPDATE;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1;
-- with many rows
INSERT INTO jobboard (uuid, name, priority, `key`, version, posting, state, attempts, max_attempts, token, who,
  lock_until, created_on, modified_on, errors, retries, job_group, key_until, board, live_key, wake_at, gone_on)
  VALUES (%(p_uuid)s, %(p_name)s, %(p_priority)s, %(p_key)s, %(p_version)s, %(p_posting)s, %(p_state)s,
  %(p_attempts)s, %(p_max_attempts)s, %(p_token)s, %(p_who)s, %(p_lock_until)s, %(p_created_on)s, %(p_modified_on)s,
  %(p_errors)s, %(p_retries)s, %(p_job_group)s, %(p_key_until)s, %(p_board)s, %(p_live_key)s, %(p_wake_at)s,
  %(p_gone_on)s) ON DUPLICATE KEY UPDATE id = jobboard.id;
SELECT jobboard.uuid, jobboard.id
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND jobboard.board = %(p_board)s;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place
  IN (%(p_places_1)s, …);
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
COMMIT;
