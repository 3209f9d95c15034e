SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS now) AS clock LEFT OUTER
  JOIN jobboard_sides ON jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place IN (?, …);
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
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard."key", jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) AS anon_1
FROM jobboard
WHERE jobboard.board = ? AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR jobboard.state =
  'CLAIMED') ORDER BY jobboard.priority, jobboard.id
 LIMIT ? OFFSET ?;
SELECT anon_1.uuid, anon_1.name, anon_1.priority, anon_1.id, anon_1."key", anon_1.version, anon_1.posting,
  anon_1.state, anon_1.attempts, anon_1.max_attempts, anon_1.token, anon_1.who, anon_1.keeper, anon_1.lock_until,
  anon_1.created_on, anon_1.modified_on, anon_1.errors, anon_1.retries, anon_1.job_group, anon_1.key_until,
  anon_1.anon_2
FROM (SELECT anon_3.uuid AS uuid, anon_3.name AS name, anon_3.priority AS priority, anon_3.id AS id, anon_3."key" AS
  "key", anon_3.version AS version, anon_3.posting AS posting, anon_3.state AS state, anon_3.attempts AS attempts,
  anon_3.max_attempts AS max_attempts, anon_3.token AS token, anon_3.who AS who, anon_3.keeper AS keeper,
  anon_3.lock_until AS lock_until, anon_3.created_on AS created_on, anon_3.modified_on AS modified_on, anon_3.errors
  AS errors, anon_3.retries AS retries, anon_3.job_group AS job_group, anon_3.key_until AS key_until, anon_3.anon_2
  AS anon_2
FROM (SELECT jobboard.uuid AS uuid, jobboard.name AS name, jobboard.priority AS priority, jobboard.id AS id,
  jobboard."key" AS "key", jobboard.version AS version, jobboard.posting AS posting, jobboard.state AS state,
  jobboard.attempts AS attempts, jobboard.max_attempts AS max_attempts, jobboard.token AS token, jobboard.who AS
  who, jobboard.keeper AS keeper, jobboard.lock_until AS lock_until, jobboard.created_on AS created_on,
  jobboard.modified_on AS modified_on, jobboard.errors AS errors, jobboard.retries AS retries, jobboard.job_group AS
  job_group, jobboard.key_until AS key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS
  INTEGER) AS anon_2
FROM jobboard
WHERE jobboard.board = ? AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR jobboard.state =
  'CLAIMED') AND jobboard.priority = ? AND jobboard.id > ? ORDER BY jobboard.priority, jobboard.id
 LIMIT ? OFFSET ?) AS anon_3 UNION ALL SELECT anon_4.uuid AS uuid, anon_4.name AS name, anon_4.priority AS priority,
  anon_4.id AS id, anon_4."key" AS "key", anon_4.version AS version, anon_4.posting AS posting, anon_4.state AS
  state, anon_4.attempts AS attempts, anon_4.max_attempts AS max_attempts, anon_4.token AS token, anon_4.who AS who,
  anon_4.keeper AS keeper, anon_4.lock_until AS lock_until, anon_4.created_on AS created_on, anon_4.modified_on AS
  modified_on, anon_4.errors AS errors, anon_4.retries AS retries, anon_4.job_group AS job_group, anon_4.key_until
  AS key_until, anon_4.anon_2 AS anon_2
FROM (SELECT jobboard.uuid AS uuid, jobboard.name AS name, jobboard.priority AS priority, jobboard.id AS id,
  jobboard."key" AS "key", jobboard.version AS version, jobboard.posting AS posting, jobboard.state AS state,
  jobboard.attempts AS attempts, jobboard.max_attempts AS max_attempts, jobboard.token AS token, jobboard.who AS
  who, jobboard.keeper AS keeper, jobboard.lock_until AS lock_until, jobboard.created_on AS created_on,
  jobboard.modified_on AS modified_on, jobboard.errors AS errors, jobboard.retries AS retries, jobboard.job_group AS
  job_group, jobboard.key_until AS key_until, CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS
  INTEGER) AS anon_2
FROM jobboard
WHERE jobboard.board = ? AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR jobboard.state =
  'CLAIMED') AND jobboard.priority > ? ORDER BY jobboard.priority, jobboard.id
 LIMIT ? OFFSET ?) AS anon_4) AS anon_1 ORDER BY anon_1.priority, anon_1.id
 LIMIT ? OFFSET ?;
SELECT jobboard_sides."key", jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = ? AND jobboard_sides.kind = ? AND jobboard_sides.place > ? ORDER BY
  jobboard_sides.place
 LIMIT ? OFFSET ?;
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
