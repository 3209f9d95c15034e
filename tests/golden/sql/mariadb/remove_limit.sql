SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides FORCE INDEX (PRIMARY)
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place IN
  (%(p_places_1)s, …) ORDER BY jobboard_sides.place FOR UPDATE;
DELETE FROM jobboard_sides WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND
  jobboard_sides.place = %(p_place)s AND jobboard_sides.version = %(p_was)s;
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
COMMIT;
