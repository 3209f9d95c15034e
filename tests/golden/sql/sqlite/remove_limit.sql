BEGIN IMMEDIATE;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place IN (?, …) ORDER BY
  jobboard_sides.place;
DELETE FROM jobboard_sides WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place = ?
  AND jobboard_sides.version = ?;
UPDATE jobboard_answers SET call=?, answer=?, stamp=CASE WHEN (jobboard_answers.stamp < CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) THEN CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle = ? AND jobboard_answers.slot = ? AND
  jobboard_answers.call < ?;
COMMIT;
