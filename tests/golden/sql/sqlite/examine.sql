SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place IN (?, …);
SELECT jobboard.id, jobboard.uuid, CASE WHEN (typeof(jobboard.token) != ?) THEN ? WHEN (typeof(jobboard.attempts) !=
  ?) THEN ? WHEN (jobboard.token >= ?) THEN ? WHEN (jobboard.attempts >= ?) THEN ? WHEN (jobboard.priority NOT
  BETWEEN ? AND ?) THEN ? WHEN ((jobboard.state NOT IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED', 'TRASHED', 'PURGED')))
  THEN ? WHEN (jobboard.state = 'CLAIMED' AND jobboard.lock_until IS NULL) THEN ? WHEN (jobboard.state = 'SCHEDULED'
  AND jobboard.lock_until IS NULL) THEN ? WHEN (jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND
  jobboard.lock_until IS NOT NULL AND jobboard.wake_at IS NULL) THEN ? WHEN (jobboard.state IN ('UNCLAIMED',
  'SCHEDULED', 'CLAIMED') AND jobboard."key" IS NOT NULL AND jobboard.live_key IS NULL) THEN ? WHEN (jobboard.state
  = 'TRASHED' AND NOT (jobboard.gone_on IS NOT NULL AND jobboard.gone_on > ?)) THEN ? WHEN (jobboard.state =
  'TRASHED' AND jobboard.gone_on IS NOT NULL AND jobboard.gone_on > ? AND jobboard.gone_on != jobboard.modified_on)
  THEN ? WHEN (jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.gone_on IS NOT NULL AND
  jobboard.gone_on > ?) THEN ? WHEN (jobboard.errors IS NOT NULL AND jobboard.errors NOT LIKE ?) THEN ? WHEN
  (jobboard.job_group = ?) THEN ? END AS anon_1
FROM jobboard
WHERE jobboard.board = ? AND jobboard.id > ? AND (typeof(jobboard.token) != ? OR typeof(jobboard.attempts) != ? OR
  jobboard.token >= ? OR jobboard.attempts >= ? OR jobboard.priority NOT BETWEEN ? AND ? OR (jobboard.state NOT IN
  ('UNCLAIMED', 'SCHEDULED', 'CLAIMED', 'TRASHED', 'PURGED')) OR jobboard.state = 'CLAIMED' AND jobboard.lock_until
  IS NULL OR jobboard.state = 'SCHEDULED' AND jobboard.lock_until IS NULL OR jobboard.state IN ('UNCLAIMED',
  'SCHEDULED', 'CLAIMED') AND jobboard.lock_until IS NOT NULL AND jobboard.wake_at IS NULL OR jobboard.state IN
  ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard."key" IS NOT NULL AND jobboard.live_key IS NULL OR
  jobboard.state = 'TRASHED' AND NOT (jobboard.gone_on IS NOT NULL AND jobboard.gone_on > ?) OR jobboard.state =
  'TRASHED' AND jobboard.gone_on IS NOT NULL AND jobboard.gone_on > ? AND jobboard.gone_on != jobboard.modified_on
  OR jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.gone_on IS NOT NULL AND jobboard.gone_on >
  ? OR jobboard.errors IS NOT NULL AND jobboard.errors NOT LIKE ? OR jobboard.job_group = ?) ORDER BY jobboard.id
 LIMIT 500 OFFSET ?;
SELECT jobboard.id, jobboard.uuid, CASE WHEN (jobboard.state = 'UNCLAIMED' AND (jobboard.lock_until IS NOT NULL OR
  jobboard.wake_at IS NOT NULL)) THEN ? ELSE ? END AS anon_1
FROM jobboard
WHERE jobboard.board = ? AND jobboard.id > ? AND (jobboard.state = 'UNCLAIMED' AND (jobboard.lock_until IS NOT NULL
  OR jobboard.wake_at IS NOT NULL) OR jobboard.state = 'TRASHED' AND jobboard.live_key IS NOT NULL) ORDER BY
  jobboard.id
 LIMIT 500 OFFSET ?;
SELECT count(*) AS count_1
FROM jobboard_answers
WHERE jobboard_answers.stamp < CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?;
SELECT count(*) AS count_1
FROM jobboard_outcomes
WHERE jobboard_outcomes.until < CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = ?;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = ?;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place > ? ORDER BY
  jobboard_sides.place
 LIMIT ? OFFSET ?;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place > ? ORDER BY
  jobboard_sides.place
 LIMIT ? OFFSET ?;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard."key", jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) AS anon_1
FROM jobboard
WHERE jobboard.board = ? AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR jobboard.state =
  'CLAIMED') ORDER BY jobboard.priority, jobboard.id
 LIMIT ? OFFSET ?;
SELECT jobboard_outcomes.uuid, jobboard_outcomes.name, jobboard_outcomes.priority, jobboard_outcomes.id,
  jobboard_outcomes."key", jobboard_outcomes.version, jobboard_outcomes.posting, jobboard_outcomes.attempts,
  jobboard_outcomes.max_attempts, jobboard_outcomes.token, jobboard_outcomes.who, jobboard_outcomes.created_on,
  jobboard_outcomes.begun, jobboard_outcomes.modified_on, jobboard_outcomes.until, jobboard_outcomes.errors,
  jobboard_outcomes.retries, jobboard_outcomes.job_group, jobboard_outcomes.result, jobboard_outcomes.refused
FROM jobboard_outcomes
WHERE jobboard_outcomes.until + 0 > CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AND
  jobboard_outcomes.board = ? ORDER BY jobboard_outcomes.modified_on DESC, jobboard_outcomes.id DESC
 LIMIT ? OFFSET ?;
