DELETE FROM jobboard WHERE 0 = 1;
SELECT (SELECT file FROM pragma_database_list WHERE name = 'main') AS anon_1;
SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1;
INSERT INTO jobboard (uuid, name, priority, "key", version, posting, state, attempts, max_attempts, token, who,
  lock_until, created_on, modified_on, errors, retries, job_group, key_until, board, live_key, wake_at, gone_on)
  VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;
SELECT jobboard.uuid, jobboard.id
FROM jobboard
WHERE jobboard.uuid IN (?, …) AND jobboard.board = ?;
