BEGIN NOT ATOMIC
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 600000000) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
IF ROW_COUNT() = 0 THEN
INSERT INTO jobboard_answers (handle, slot, `call`, answer, stamp) VALUES (%(p_handle)s, %(p_slot)s, %(p_call)s,
  %(p_answer)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)));
END IF;
INSERT INTO jobboard (name, priority, version, max_attempts, job_group, uuid, posting, state, attempts, token,
  retries, created_on, modified_on, board) SELECT %(p_name)s AS anon_1, %(p_priority)s AS anon_2, %(p_version)s AS
  anon_3, %(p_max_attempts)s AS anon_4, %(p_job_group)s AS anon_5, draft.uuid, draft.posting, 'UNCLAIMED' AS anon_6,
  0 AS anon_7, 0 AS anon__1, 0 AS anon__2, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS
  anon_8, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon__3, %(p_board)s AS anon_9
FROM JSON_TABLE(CONVERT(%(p_drafts)s USING utf8mb4), '$[*]' COLUMNS (
  uuid VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]', posting LONGTEXT CHARACTER SET
  utf8mb4 PATH '$[1]')) AS draft RETURNING concat_ws(' ', jobboard.id, jobboard.created_on, jobboard.uuid) AS
  concat_ws_1;
COMMIT;
END;
