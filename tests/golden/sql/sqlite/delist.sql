SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = ?;
BEGIN IMMEDIATE;
DELETE FROM jobboard_sides WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place = ?
  AND jobboard_sides.version = ?;
COMMIT;
