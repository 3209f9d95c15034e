BEGIN NOT ATOMIC
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 600000000) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
IF ROW_COUNT() = 0 THEN
INSERT INTO jobboard_answers (handle, slot, `call`, answer, stamp) VALUES (%(p_handle)s, %(p_slot)s, %(p_call)s,
  %(p_answer)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)));
END IF;
DELETE jobboard FROM jobboard FORCE INDEX (jobboard_uuid) WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND
  jobboard.board = %(p_board)s AND jobboard.token = %(p_token)s AND jobboard.who IS NOT NULL AND (jobboard.state =
  'UNCLAIMED' OR jobboard.state = 'CLAIMED' AND (jobboard.lock_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01
  00:00:00', UTC_TIMESTAMP(6)) OR jobboard.max_attempts IS NULL OR jobboard.attempts < jobboard.max_attempts)) AND
  (jobboard.key_until IS NULL OR jobboard.key_until <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)));
IF ROW_COUNT() <> %(p_count)s THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'not all of these claims stand';
END IF;
COMMIT;
END;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place
  IN (%(p_places_1)s, …);
ROLLBACK;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND jobboard.board = %(p_board)s;
ROLLBACK;
DELETE FROM jobboard_sides WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND
  jobboard_sides.place = %(p_place)s AND jobboard_sides.version = %(p_was)s;
COMMIT;
