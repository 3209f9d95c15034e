SELECT jobboard_answers.handle
FROM jobboard_answers
WHERE jobboard_answers.stamp < (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) - ?
  ORDER BY jobboard_answers.stamp
 LIMIT 1000 OFFSET ?;
SELECT jobboard.uuid
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'PURGED' AND jobboard.gone_on < 0 AND jobboard.gone_on > ? -
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) ORDER BY jobboard.gone_on DESC
 LIMIT 1000 OFFSET ?;
SELECT jobboard_sides.kind, jobboard_sides.place
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.until < CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) ORDER BY jobboard_sides.until
 LIMIT 1000 OFFSET ?;
SELECT jobboard_outcomes.uuid
FROM jobboard_outcomes
WHERE jobboard_outcomes.board = ? AND jobboard_outcomes.until <= CAST(ROUND((julianday('now') - 2440587.5) *
  86400000) * 1000 AS INTEGER) ORDER BY jobboard_outcomes.until
 LIMIT 250 OFFSET ?;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place > ? ORDER BY
  jobboard_sides.place
 LIMIT ? OFFSET ?;
