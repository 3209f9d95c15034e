DELETE FROM jobboard WHERE 0 = 1;
SELECT (SELECT file FROM pragma_database_list WHERE name = 'main') AS anon_1;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard."key", jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) AS anon_1
FROM jobboard
WHERE jobboard.uuid IN (?, …) AND jobboard.board = ?;
DELETE FROM jobboard WHERE jobboard.uuid IN (?, …) AND jobboard.board = ?;
INSERT INTO jobboard_outcomes (uuid, board, name, priority, id, "key", version, posting, attempts, max_attempts,
  token, who, created_on, begun, modified_on, until, errors, retries, job_group, result, refused) VALUES (?, ?, ?,
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING;
