SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place
  IN (%(p_places_1)s, …);
ROLLBACK;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides FORCE INDEX (PRIMARY)
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place IN
  (%(p_places_1)s, …) ORDER BY jobboard_sides.place FOR UPDATE;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1;
INSERT INTO jobboard_sides (board, kind, place, `key`, value, until, version) VALUES (%(p_board)s, %(p_kind)s,
  %(p_place)s, %(p_key)s, %(p_value)s, coalesce(%(p_until)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) + %(p_ttl)s), %(p_version)s) ON DUPLICATE KEY UPDATE board = jobboard_sides.board;
SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place = %(p_place)s;
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
COMMIT;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place
  IN (%(p_places_1)s, …);
ROLLBACK;
SELECT jobboard.id
FROM jobboard FORCE INDEX (PRIMARY)
WHERE jobboard.board = %(p_board)s AND (jobboard.state = 'UNCLAIMED' OR jobboard.lock_until <=
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND (jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED' AND (jobboard.max_attempts IS NULL OR jobboard.attempts < jobboard.max_attempts))) AND
  jobboard.id > %(p_after)s ORDER BY jobboard.id
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT jobboard.id
FROM jobboard FORCE INDEX (PRIMARY)
WHERE jobboard.id IN (…) FOR UPDATE SKIP LOCKED;
ROLLBACK;
SELECT jobboard.id
FROM jobboard FORCE INDEX (PRIMARY)
WHERE jobboard.board = %(p_board)s AND (jobboard.state = 'UNCLAIMED' OR jobboard.lock_until <=
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND (jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED' AND (jobboard.max_attempts IS NULL OR jobboard.attempts < jobboard.max_attempts))) AND
  jobboard.id > %(p_after)s ORDER BY jobboard.id
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED') AND jobboard.name IN (%(p_names_1)s, …) AND jobboard.state = 'CLAIMED' ORDER BY
  jobboard.priority, jobboard.id
 LIMIT %(p_limit)s;
ROLLBACK;
