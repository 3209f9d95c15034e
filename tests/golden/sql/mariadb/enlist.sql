SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place
  IN (%(p_places_1)s, …);
ROLLBACK;
INSERT INTO jobboard_sides (board, kind, place, `key`, value, until, version) VALUES (%(p_board)s, %(p_kind)s,
  %(p_place)s, %(p_key)s, %(p_value)s, coalesce(%(p_until)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) + %(p_ttl)s), %(p_version)s) ON DUPLICATE KEY UPDATE board = jobboard_sides.board;
SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place = %(p_place)s;
COMMIT;
