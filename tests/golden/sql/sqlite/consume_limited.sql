BEGIN IMMEDIATE;
DELETE FROM jobboard WHERE jobboard.uuid IN (SELECT anon_1.value
FROM json_each(?) AS anon_1) AND jobboard.board = ? AND jobboard.token = ? AND jobboard.who IS NOT NULL AND
  (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'CLAIMED' AND (jobboard.lock_until >
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) OR jobboard.max_attempts IS NULL OR
  jobboard.attempts < jobboard.max_attempts)) AND (jobboard.key_until IS NULL OR jobboard.key_until <=
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER));
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
WHERE jobboard.uuid IN (?, …) AND jobboard.board = ?;
BEGIN IMMEDIATE;
DELETE FROM jobboard_sides WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place = ?
  AND jobboard_sides.version = ?;
COMMIT;
