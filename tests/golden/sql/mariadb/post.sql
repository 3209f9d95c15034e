BEGIN NOT ATOMIC
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 600000000) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
IF ROW_COUNT() = 0 THEN
INSERT INTO jobboard_answers (handle, slot, `call`, answer, stamp) VALUES (%(p_handle)s, %(p_slot)s, %(p_call)s,
  %(p_answer)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)));
END IF;
INSERT INTO jobboard (uuid, name, priority, version, posting, state, attempts, max_attempts, token, created_on,
  modified_on, retries, job_group, board) VALUES (%(p_uuid)s, %(p_name)s, %(p_priority)s, %(p_version)s,
  %(p_posting)s, 'UNCLAIMED', 0, %(p_max_attempts)s, 0, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), 0, %(p_job_group)s,
  %(p_board)s) RETURNING concat_ws(' ', jobboard.id, jobboard.created_on, jobboard.uuid) AS concat_ws_1;
COMMIT;
END;
