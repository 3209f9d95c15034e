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
-- with many rows
INSERT INTO jobboard_sides (board, kind, place, "key", value, version) VALUES (?, 'scope', ?, ?, CAST(? AS BLOB), ?)
  ON CONFLICT (board, kind, place) DO UPDATE SET value = CAST(jobboard_sides.value || excluded.value AS BLOB),
  version = excluded.version WHERE length(jobboard_sides.value) % 54 = 0 AND length(jobboard_sides.value) <= ?;
UPDATE jobboard_answers SET call=?, answer=?, stamp=CASE WHEN (jobboard_answers.stamp < CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) THEN CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle = ? AND jobboard_answers.slot = ? AND
  jobboard_answers.call < ?;
COMMIT;
