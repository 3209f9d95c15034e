SELECT jobboard_answers.handle
FROM jobboard_answers FORCE INDEX (jobboard_answers_stamp)
WHERE jobboard_answers.stamp < (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) -
  %(param_2)s ORDER BY jobboard_answers.stamp
 LIMIT 1000;
ROLLBACK;
SELECT jobboard.uuid
FROM jobboard FORCE INDEX (jobboard_trash)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'PURGED' AND jobboard.gone_on < 0 AND jobboard.gone_on >
  %(param_3)s - TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ORDER BY jobboard.gone_on DESC
 LIMIT 1000;
ROLLBACK;
SELECT jobboard_sides.kind, jobboard_sides.place
FROM jobboard_sides FORCE INDEX (jobboard_sides_until)
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01
  00:00:00', UTC_TIMESTAMP(6)) ORDER BY jobboard_sides.until
 LIMIT 1000;
ROLLBACK;
SELECT jobboard_outcomes.uuid
FROM jobboard_outcomes FORCE INDEX (jobboard_outcomes_until)
WHERE jobboard_outcomes.board = %(p_board)s AND jobboard_outcomes.until <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01
  00:00:00', UTC_TIMESTAMP(6)) ORDER BY jobboard_outcomes.until
 LIMIT 500;
ROLLBACK;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place > %(p_after)s
  ORDER BY jobboard_sides.place
 LIMIT %(p_limit)s;
ROLLBACK;
