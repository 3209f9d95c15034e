PRAGMA data_version;
SELECT (SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= ? AND coalesce((SELECT
  jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ? ORDER BY jobboard.priority,
  jobboard.id
 LIMIT 1 OFFSET ?) IS NOT NULL OR (EXISTS (SELECT *
FROM jobboard
WHERE jobboard.board = ? AND jobboard.wake_at <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS
  INTEGER) AND jobboard.version <= ? AND (jobboard.state = 'UNCLAIMED' OR jobboard.lock_until <=
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AND (jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED' AND (jobboard.max_attempts IS NULL OR jobboard.attempts < jobboard.max_attempts))) AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ?)) AS anon_1,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_2, (SELECT jobboard.wake_at AS
  event
FROM jobboard
WHERE jobboard.board = ? AND jobboard.wake_at IS NOT NULL AND jobboard.wake_at > CAST(ROUND((julianday('now') -
  2440587.5) * 86400000) * 1000 AS INTEGER) ORDER BY jobboard.wake_at
 LIMIT 1 OFFSET ?) AS anon_3, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS coalesce_1;
