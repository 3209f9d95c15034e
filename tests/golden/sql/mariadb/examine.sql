SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1;
ROLLBACK;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place
  IN (%(p_places_1)s, …);
ROLLBACK;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s;
ROLLBACK;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s;
ROLLBACK;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place > %(p_after)s
  ORDER BY jobboard_sides.place
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (jobboard_serving)
WHERE jobboard.board = %(p_board)s AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED') ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT anon_1.uuid, anon_1.name, anon_1.priority, anon_1.id, anon_1.`key`, anon_1.version, anon_1.posting,
  anon_1.state, anon_1.attempts, anon_1.max_attempts, anon_1.token, anon_1.who, anon_1.keeper, anon_1.lock_until,
  anon_1.created_on, anon_1.modified_on, anon_1.errors, anon_1.retries, anon_1.job_group, anon_1.key_until,
  anon_1.anon_2
FROM (SELECT anon_3.uuid AS uuid, anon_3.name AS name, anon_3.priority AS priority, anon_3.id AS id, anon_3.`key` AS
  `key`, anon_3.version AS version, anon_3.posting AS posting, anon_3.state AS state, anon_3.attempts AS attempts,
  anon_3.max_attempts AS max_attempts, anon_3.token AS token, anon_3.who AS who, anon_3.keeper AS keeper,
  anon_3.lock_until AS lock_until, anon_3.created_on AS created_on, anon_3.modified_on AS modified_on, anon_3.errors
  AS errors, anon_3.retries AS retries, anon_3.job_group AS job_group, anon_3.key_until AS key_until, anon_3.anon_2
  AS anon_2
FROM (SELECT jobboard.uuid AS uuid, jobboard.name AS name, jobboard.priority AS priority, jobboard.id AS id,
  jobboard.`key` AS `key`, jobboard.version AS version, jobboard.posting AS posting, jobboard.state AS state,
  jobboard.attempts AS attempts, jobboard.max_attempts AS max_attempts, jobboard.token AS token, jobboard.who AS
  who, jobboard.keeper AS keeper, jobboard.lock_until AS lock_until, jobboard.created_on AS created_on,
  jobboard.modified_on AS modified_on, jobboard.errors AS errors, jobboard.retries AS retries, jobboard.job_group AS
  job_group, jobboard.key_until AS key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS
  anon_2
FROM jobboard FORCE INDEX (jobboard_serving)
WHERE jobboard.board = %(p_board)s AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED') AND jobboard.priority = %(p_priority)s AND jobboard.id > %(p_id)s ORDER BY
  jobboard.priority, jobboard.id
 LIMIT %(p_limit)s) AS anon_3 UNION ALL SELECT anon_4.uuid AS uuid, anon_4.name AS name, anon_4.priority AS
  priority, anon_4.id AS id, anon_4.`key` AS `key`, anon_4.version AS version, anon_4.posting AS posting,
  anon_4.state AS state, anon_4.attempts AS attempts, anon_4.max_attempts AS max_attempts, anon_4.token AS token,
  anon_4.who AS who, anon_4.keeper AS keeper, anon_4.lock_until AS lock_until, anon_4.created_on AS created_on,
  anon_4.modified_on AS modified_on, anon_4.errors AS errors, anon_4.retries AS retries, anon_4.job_group AS
  job_group, anon_4.key_until AS key_until, anon_4.anon_2 AS anon_2
FROM (SELECT jobboard.uuid AS uuid, jobboard.name AS name, jobboard.priority AS priority, jobboard.id AS id,
  jobboard.`key` AS `key`, jobboard.version AS version, jobboard.posting AS posting, jobboard.state AS state,
  jobboard.attempts AS attempts, jobboard.max_attempts AS max_attempts, jobboard.token AS token, jobboard.who AS
  who, jobboard.keeper AS keeper, jobboard.lock_until AS lock_until, jobboard.created_on AS created_on,
  jobboard.modified_on AS modified_on, jobboard.errors AS errors, jobboard.retries AS retries, jobboard.job_group AS
  job_group, jobboard.key_until AS key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS
  anon_2
FROM jobboard FORCE INDEX (jobboard_serving)
WHERE jobboard.board = %(p_board)s AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED') AND jobboard.priority > %(p_priority)s ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s) AS anon_4) AS anon_1 ORDER BY anon_1.priority, anon_1.id
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place > %(p_after)s
  ORDER BY jobboard_sides.place
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT concat(%(concat_2)s, CAST(information_schema.innodb_trx.trx_mysql_thread_id AS CHAR(20))) AS concat_1,
  concat(information_schema.processlist.user, %(concat_4)s, information_schema.processlist.host) AS concat_3,
  information_schema.processlist.command, timestampdiff(SECOND, information_schema.innodb_trx.trx_started, now()) AS
  timestampdiff_1, concat(%(concat_6)s, CAST(information_schema.innodb_trx.trx_mysql_thread_id AS CHAR(20))) AS
  concat_5
FROM information_schema.innodb_trx INNER JOIN information_schema.processlist ON information_schema.processlist.id =
  information_schema.innodb_trx.trx_mysql_thread_id;
ROLLBACK;
SELECT jobboard.id, jobboard.uuid, CASE WHEN (jobboard.token >= %(token_1)s) THEN %(param_1)s WHEN
  (jobboard.attempts >= %(attempts_1)s) THEN %(param_2)s WHEN (jobboard.priority NOT BETWEEN %(priority_1)s AND
  %(priority_2)s) THEN %(param_3)s WHEN ((jobboard.state NOT IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED', 'TRASHED',
  'PURGED'))) THEN %(param_9)s WHEN (jobboard.state = 'CLAIMED' AND jobboard.lock_until IS NULL) THEN %(param_11)s
  WHEN (jobboard.state = 'SCHEDULED' AND jobboard.lock_until IS NULL) THEN %(param_13)s WHEN (jobboard.state IN
  ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.lock_until IS NOT NULL AND jobboard.wake_at IS NULL) THEN
  %(param_17)s WHEN (jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.`key` IS NOT NULL AND
  jobboard.live_key IS NULL) THEN %(param_18)s WHEN (jobboard.state = 'TRASHED' AND NOT (jobboard.gone_on IS NOT
  NULL AND jobboard.gone_on > %(gone_on_1)s)) THEN %(param_20)s WHEN (jobboard.state = 'TRASHED' AND
  jobboard.gone_on IS NOT NULL AND jobboard.gone_on > %(gone_on_1)s AND jobboard.gone_on != jobboard.modified_on)
  THEN %(param_22)s WHEN (jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.gone_on IS NOT NULL
  AND jobboard.gone_on > %(gone_on_1)s) THEN %(param_23)s WHEN (jobboard.errors IS NOT NULL AND jobboard.errors NOT
  LIKE %(errors_1)s) THEN %(param_24)s WHEN (jobboard.job_group = %(job_group_1)s) THEN %(param_25)s END AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.id > %(p_id)s AND (jobboard.token >= %(token_1)s OR
  jobboard.attempts >= %(attempts_1)s OR jobboard.priority NOT BETWEEN %(priority_1)s AND %(priority_2)s OR
  (jobboard.state NOT IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED', 'TRASHED', 'PURGED')) OR jobboard.state = 'CLAIMED'
  AND jobboard.lock_until IS NULL OR jobboard.state = 'SCHEDULED' AND jobboard.lock_until IS NULL OR jobboard.state
  IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.lock_until IS NOT NULL AND jobboard.wake_at IS NULL OR
  jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.`key` IS NOT NULL AND jobboard.live_key IS
  NULL OR jobboard.state = 'TRASHED' AND NOT (jobboard.gone_on IS NOT NULL AND jobboard.gone_on > %(gone_on_1)s) OR
  jobboard.state = 'TRASHED' AND jobboard.gone_on IS NOT NULL AND jobboard.gone_on > %(gone_on_1)s AND
  jobboard.gone_on != jobboard.modified_on OR jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND
  jobboard.gone_on IS NOT NULL AND jobboard.gone_on > %(gone_on_1)s OR jobboard.errors IS NOT NULL AND
  jobboard.errors NOT LIKE %(errors_1)s OR jobboard.job_group = %(job_group_1)s) ORDER BY jobboard.id
 LIMIT 500;
ROLLBACK;
SELECT jobboard.id, jobboard.uuid, CASE WHEN (jobboard.state = 'UNCLAIMED' AND (jobboard.lock_until IS NOT NULL OR
  jobboard.wake_at IS NOT NULL)) THEN %(param_2)s ELSE %(param_3)s END AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.id > %(p_id)s AND (jobboard.state = 'UNCLAIMED' AND
  (jobboard.lock_until IS NOT NULL OR jobboard.wake_at IS NOT NULL) OR jobboard.state = 'TRASHED' AND
  jobboard.live_key IS NOT NULL) ORDER BY jobboard.id
 LIMIT 500;
ROLLBACK;
SELECT count(*) AS count_1
FROM jobboard_answers
WHERE jobboard_answers.stamp < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s;
ROLLBACK;
SELECT count(*) AS count_1
FROM jobboard_outcomes
WHERE jobboard_outcomes.until < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s;
ROLLBACK;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (jobboard_serving)
WHERE jobboard.board = %(p_board)s AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED') ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT jobboard_outcomes.uuid, jobboard_outcomes.name, jobboard_outcomes.priority, jobboard_outcomes.id,
  jobboard_outcomes.`key`, jobboard_outcomes.version, jobboard_outcomes.posting, jobboard_outcomes.attempts,
  jobboard_outcomes.max_attempts, jobboard_outcomes.token, jobboard_outcomes.who, jobboard_outcomes.created_on,
  jobboard_outcomes.begun, jobboard_outcomes.modified_on, jobboard_outcomes.until, jobboard_outcomes.errors,
  jobboard_outcomes.retries, jobboard_outcomes.job_group, jobboard_outcomes.result, jobboard_outcomes.refused
FROM jobboard_outcomes FORCE INDEX (jobboard_outcomes_newest)
WHERE jobboard_outcomes.until + 0 > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND
  jobboard_outcomes.board = %(p_board)s ORDER BY jobboard_outcomes.modified_on DESC, jobboard_outcomes.id DESC
 LIMIT %(p_limit)s;
ROLLBACK;
