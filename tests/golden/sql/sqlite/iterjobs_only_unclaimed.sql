SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard."key", jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) AS anon_1
FROM jobboard
WHERE jobboard.board = ? AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR jobboard.state =
  'CLAIMED') AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'UNCLAIMED' OR jobboard.lock_until <=
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AND (jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED' AND (jobboard.max_attempts IS NULL OR jobboard.attempts < jobboard.max_attempts)))
  ORDER BY jobboard.priority, jobboard.id
 LIMIT ? OFFSET ?;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place IN (?, …);
