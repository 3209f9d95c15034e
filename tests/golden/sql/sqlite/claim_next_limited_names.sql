PRAGMA data_version;
BEGIN IMMEDIATE;
SELECT clock.now, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = ? AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1 OFFSET ?) AS anon_1, jobboard_sides.value, jobboard_sides.version
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0';
SELECT anon_1.id, anon_1.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= ? AND coalesce((SELECT
  jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ? AND jobboard.name = ? AND
  jobboard.job_group IS NULL ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 OFFSET ?) AS anon_1 UNION ALL SELECT anon_2.id, anon_2.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= ? AND coalesce((SELECT
  jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ? AND jobboard.name = ? AND
  jobboard.job_group IS NOT NULL ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 OFFSET ?) AS anon_2 UNION ALL SELECT anon_3.id, anon_3.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= ? AND coalesce((SELECT
  jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ? AND jobboard.name = ? AND
  jobboard.job_group IS NULL ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 OFFSET ?) AS anon_3 UNION ALL SELECT anon_4.id, anon_4.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= ? AND coalesce((SELECT
  jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ? AND jobboard.name = ? AND
  jobboard.job_group IS NOT NULL ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 OFFSET ?) AS anon_4;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard."key", jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) AS anon_1
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= ? AND coalesce((SELECT
  jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ? AND jobboard.id IN (?, …) ORDER BY
  jobboard.priority, jobboard.id
 LIMIT ? OFFSET ?;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place IN (?, …) ORDER BY
  jobboard_sides.place;
UPDATE jobboard SET state=?, attempts=?, token=?, who=?, keeper=?, lock_until=?, modified_on=?, errors=?, retries=?,
  live_key=?, wake_at=?, gone_on=? WHERE jobboard.id = ? AND jobboard.token = ? AND jobboard.state = ?;
UPDATE jobboard_sides SET value=?, until=coalesce(?, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS
  INTEGER) + ?), version=? WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place = ?
  AND jobboard_sides.version = ?;
UPDATE jobboard_answers SET call=?, answer=?, stamp=CASE WHEN (jobboard_answers.stamp < CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) THEN CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle = ? AND jobboard_answers.slot = ? AND
  jobboard_answers.call < ?;
COMMIT;
