BEGIN IMMEDIATE;
SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1, coalesce((SELECT
  sqlite_sequence.seq
FROM sqlite_sequence
WHERE sqlite_sequence.name = ?), ?) + ? AS anon_2;
-- with many rows
INSERT INTO jobboard (uuid, name, priority, id, version, posting, state, attempts, max_attempts, token, lock_until,
  created_on, modified_on, retries, job_group, board, wake_at) VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, 0, ?, ?, ?, 0, ?,
  ?, ?);
UPDATE jobboard_answers SET call=?, answer=?, stamp=CASE WHEN (jobboard_answers.stamp < CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) THEN CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle = ? AND jobboard_answers.slot = ? AND
  jobboard_answers.call < ?;
COMMIT;
