PRAGMA data_version;
BEGIN IMMEDIATE;
UPDATE jobboard SET state='CLAIMED', attempts=CASE WHEN (typeof(jobboard.attempts) = ? AND typeof(jobboard.token) =
  ? AND jobboard.attempts < ? AND jobboard.token < ?) THEN jobboard.attempts + ? END, token=max(jobboard.token + ?,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER)), who=?, keeper=?,
  lock_until=(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) + ?),
  modified_on=CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER),
  wake_at=(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) + ?) WHERE jobboard.id IN
  (SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= ? AND coalesce((SELECT
  jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ? ORDER BY jobboard.priority,
  jobboard.id
 LIMIT ? OFFSET ?) AND NOT (EXISTS (SELECT *
FROM jobboard
WHERE jobboard.board = ? AND jobboard.wake_at <= CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS
  INTEGER))) RETURNING uuid, name, priority, id, "key", version, posting, state, attempts, max_attempts, token, who,
  keeper, lock_until, created_on, modified_on, errors, retries, job_group, key_until;
ROLLBACK;
SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1, (SELECT jobboard.wake_at
  AS event
FROM jobboard
WHERE jobboard.board = ? AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1 OFFSET ?) AS anon_2, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS coalesce_1;
BEGIN IMMEDIATE;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard."key", jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) AS anon_1
FROM jobboard
WHERE jobboard.board = ? AND jobboard.wake_at >= ? AND jobboard.wake_at <= CAST(ROUND((julianday('now') - 2440587.5)
  * 86400000) * 1000 AS INTEGER) ORDER BY jobboard.wake_at
 LIMIT 100 OFFSET ?;
-- with many rows
UPDATE jobboard SET state=?, attempts=?, token=?, who=?, keeper=?, lock_until=?, modified_on=?, errors=?, retries=?,
  live_key=?, wake_at=?, gone_on=? WHERE jobboard.id = ? AND jobboard.token = ? AND jobboard.state = ?;
COMMIT;
BEGIN IMMEDIATE;
UPDATE jobboard SET state='CLAIMED', attempts=CASE WHEN (typeof(jobboard.attempts) = ? AND typeof(jobboard.token) =
  ? AND jobboard.attempts < ? AND jobboard.token < ?) THEN jobboard.attempts + ? END, token=max(jobboard.token + ?,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER)), who=?, keeper=?,
  lock_until=(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) + ?),
  modified_on=CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER),
  wake_at=(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) + ?) WHERE jobboard.id IN
  (SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = ? AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= ? AND coalesce((SELECT
  jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = ? ORDER BY jobboard.priority,
  jobboard.id
 LIMIT ? OFFSET ?) RETURNING uuid, name, priority, id, "key", version, posting, state, attempts, max_attempts,
  token, who, keeper, lock_until, created_on, modified_on, errors, retries, job_group, key_until;
UPDATE jobboard_answers SET call=?, answer=?, stamp=CASE WHEN (jobboard_answers.stamp < CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) THEN CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle = ? AND jobboard_answers.slot = ? AND
  jobboard_answers.call < ?;
COMMIT;
