SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (jobboard_uuid)
WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND jobboard.board = %(p_board)s FOR UPDATE;
DELETE jobboard FROM jobboard FORCE INDEX (jobboard_uuid) WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND
  jobboard.board = %(p_board)s;
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
COMMIT;
