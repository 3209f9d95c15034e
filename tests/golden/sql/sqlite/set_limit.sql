SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place IN (?, …);
BEGIN IMMEDIATE;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place IN (?, …) ORDER BY
  jobboard_sides.place;
SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1;
INSERT INTO jobboard_sides (board, kind, place, "key", value, until, version) VALUES (?, ?, ?, ?, ?, coalesce(?,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) + ?), ?) ON CONFLICT DO NOTHING;
SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place = ?;
UPDATE jobboard_answers SET call=?, answer=?, stamp=CASE WHEN (jobboard_answers.stamp < CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) THEN CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle = ? AND jobboard_answers.slot = ? AND
  jobboard_answers.call < ?;
COMMIT;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place IN (?, …);
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard."key", jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) AS anon_1
FROM jobboard
WHERE jobboard.board = ? AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR jobboard.state =
  'CLAIMED') AND jobboard.name IN (?, …) AND jobboard.state = 'CLAIMED' ORDER BY jobboard.priority, jobboard.id
 LIMIT ? OFFSET ?;
