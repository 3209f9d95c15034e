BEGIN IMMEDIATE;
INSERT INTO jobboard_outcomes (uuid, board, name, priority, id, "key", version, posting, attempts, max_attempts,
  token, who, created_on, errors, retries, job_group, begun, modified_on, until, result, refused) SELECT
  jobboard.uuid, jobboard.board, jobboard.name, jobboard.priority, jobboard.id, jobboard."key", jobboard.version,
  jobboard.posting, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who, jobboard.created_on,
  jobboard.errors, jobboard.retries, jobboard.job_group, jobboard.modified_on, CAST(ROUND((julianday('now') -
  2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) + ? AS anon_2, ? AS anon_3, ? AS anon_4
FROM jobboard
WHERE jobboard.uuid IN (SELECT anon_5.value
FROM json_each(?) AS anon_5) AND jobboard.board = ? AND jobboard.token = ? AND jobboard.who IS NOT NULL AND
  (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'CLAIMED' AND jobboard.lock_until > CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER)) AND (jobboard.key_until IS NULL OR jobboard.key_until <=
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER));
DELETE FROM jobboard WHERE jobboard.uuid IN (SELECT anon_1.value
FROM json_each(?) AS anon_1) AND jobboard.board = ? AND jobboard.token = ? AND jobboard.who IS NOT NULL AND
  (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'CLAIMED' AND jobboard.lock_until > CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER)) AND (jobboard.key_until IS NULL OR jobboard.key_until <=
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER));
UPDATE jobboard_answers SET call=?, answer=?, stamp=CASE WHEN (jobboard_answers.stamp < CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) THEN CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle = ? AND jobboard_answers.slot = ? AND
  jobboard_answers.call < ?;
COMMIT;
