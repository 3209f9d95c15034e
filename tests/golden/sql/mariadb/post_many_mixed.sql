BEGIN NOT ATOMIC
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 600000000) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
IF ROW_COUNT() = 0 THEN
INSERT INTO jobboard_answers (handle, slot, `call`, answer, stamp) VALUES (%(p_handle)s, %(p_slot)s, %(p_call)s,
  %(p_answer)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)));
END IF;
INSERT INTO jobboard (uuid, name, priority, version, max_attempts, job_group, posting, state, lock_until, wake_at,
  attempts, token, retries, created_on, modified_on, board) SELECT draft.uuid, draft.name, draft.priority,
  draft.version, draft.max_attempts, draft.job_group, draft.posting, CASE WHEN (CASE WHEN (coalesce(draft.due,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + draft.delay) > TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) THEN coalesce(draft.due, TIMESTAMPDIFF(MICROSECOND, '1970-01-01
  00:00:00', UTC_TIMESTAMP(6)) + draft.delay) END IS NULL) THEN 'UNCLAIMED' ELSE 'SCHEDULED' END AS anon_1, CASE
  WHEN (coalesce(draft.due, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + draft.delay) >
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) THEN coalesce(draft.due,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + draft.delay) END AS anon_2, CASE WHEN
  (coalesce(draft.due, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + draft.delay) >
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) THEN coalesce(draft.due,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + draft.delay) END AS anon__1, 0 AS anon_3, 0
  AS anon__2, 0 AS anon__3, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_4,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon__4, %(p_board)s AS anon_5
FROM JSON_TABLE(CONVERT(%(p_drafts)s USING utf8mb4), '$[*]' COLUMNS (
  uuid VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]', name VARCHAR(255) CHARACTER SET
  utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]', priority SMALLINT PATH '$[2]',
  version INT PATH '$[3]', max_attempts INT PATH '$[4]', job_group VARCHAR(255) CHARACTER SET utf8mb4 COLLATE
  utf8mb4_nopad_bin PATH '$[5]',
  due BIGINT PATH '$[6]', delay BIGINT PATH '$[7]', posting LONGTEXT CHARACTER SET utf8mb4 PATH '$[8]')) AS draft
  RETURNING concat_ws(' ', jobboard.id, jobboard.created_on, jobboard.uuid) AS concat_ws_1;
COMMIT;
END;
