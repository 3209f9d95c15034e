SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …);
SELECT %(param_1)s::VARCHAR || CAST(pg_catalog.pg_stat_activity.pid AS TEXT) AS anon_1,
  pg_catalog.pg_stat_activity.usename || CASE WHEN (pg_catalog.pg_stat_activity.application_name !=
  %(application_name_1)s::VARCHAR) THEN %(application_name_2)s::VARCHAR ||
  pg_catalog.pg_stat_activity.application_name ELSE %(param_2)s::VARCHAR END AS anon_2,
  pg_catalog.pg_stat_activity.state, CAST(EXTRACT(epoch FROM clock_timestamp() -
  pg_catalog.pg_stat_activity.xact_start) AS FLOAT) AS anon_3, %(param_3)s::VARCHAR ||
  CAST(pg_catalog.pg_stat_activity.pid AS TEXT) || %(param_4)s::VARCHAR AS anon_4
FROM pg_catalog.pg_stat_activity
WHERE (pg_catalog.pg_stat_activity.backend_xmin IS NOT NULL OR pg_catalog.pg_stat_activity.backend_xid IS NOT NULL)
  AND pg_catalog.pg_stat_activity.pid != pg_backend_pid();
SELECT %(gid_1)s::VARCHAR || pg_catalog.pg_prepared_xacts.gid AS anon_1, pg_catalog.pg_prepared_xacts.owner,
  %(param_1)s::VARCHAR AS anon_2, CAST(EXTRACT(epoch FROM clock_timestamp() - pg_catalog.pg_prepared_xacts.prepared)
  AS FLOAT) AS anon_3, %(gid_2)s::VARCHAR || pg_catalog.pg_prepared_xacts.gid || %(param_2)s::VARCHAR AS anon_4
FROM pg_catalog.pg_prepared_xacts;
SELECT jobboard.id, jobboard.uuid, CASE WHEN (jobboard.token >= %(token_1)s::BIGINT) THEN %(param_1)s::VARCHAR WHEN
  (jobboard.attempts >= %(attempts_1)s::INTEGER) THEN %(param_2)s::VARCHAR WHEN (jobboard.priority NOT BETWEEN
  %(priority_1)s::SMALLINT AND %(priority_2)s::SMALLINT) THEN %(param_3)s::VARCHAR WHEN ((jobboard.state NOT IN
  ('UNCLAIMED', 'SCHEDULED', 'CLAIMED', 'TRASHED', 'PURGED'))) THEN %(param_9)s::VARCHAR WHEN (jobboard.state =
  'CLAIMED' AND jobboard.lock_until IS NULL) THEN %(param_11)s::VARCHAR WHEN (jobboard.state = 'SCHEDULED' AND
  jobboard.lock_until IS NULL) THEN %(param_13)s::VARCHAR WHEN (jobboard.state IN ('UNCLAIMED', 'SCHEDULED',
  'CLAIMED') AND jobboard.lock_until IS NOT NULL AND jobboard.wake_at IS NULL) THEN %(param_17)s::VARCHAR WHEN
  (jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.key IS NOT NULL AND jobboard.live_key IS
  NULL) THEN %(param_18)s::VARCHAR WHEN (jobboard.state = 'TRASHED' AND NOT (jobboard.gone_on IS NOT NULL AND
  jobboard.gone_on > %(gone_on_1)s::BIGINT)) THEN %(param_20)s::VARCHAR WHEN (jobboard.state = 'TRASHED' AND
  jobboard.gone_on IS NOT NULL AND jobboard.gone_on > %(gone_on_1)s::BIGINT AND jobboard.gone_on !=
  jobboard.modified_on) THEN %(param_22)s::VARCHAR WHEN (jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND
  jobboard.gone_on IS NOT NULL AND jobboard.gone_on > %(gone_on_1)s::BIGINT) THEN %(param_23)s::VARCHAR WHEN
  (jobboard.errors IS NOT NULL AND jobboard.errors NOT LIKE %(errors_1)s::VARCHAR) THEN %(param_24)s::VARCHAR WHEN
  (jobboard.job_group = %(job_group_1)s::VARCHAR) THEN %(param_25)s::VARCHAR END AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.id > %(p_id)s::BIGINT AND (jobboard.token >=
  %(token_1)s::BIGINT OR jobboard.attempts >= %(attempts_1)s::INTEGER OR jobboard.priority NOT BETWEEN
  %(priority_1)s::SMALLINT AND %(priority_2)s::SMALLINT OR (jobboard.state NOT IN ('UNCLAIMED', 'SCHEDULED',
  'CLAIMED', 'TRASHED', 'PURGED')) OR jobboard.state = 'CLAIMED' AND jobboard.lock_until IS NULL OR jobboard.state =
  'SCHEDULED' AND jobboard.lock_until IS NULL OR jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND
  jobboard.lock_until IS NOT NULL AND jobboard.wake_at IS NULL OR jobboard.state IN ('UNCLAIMED', 'SCHEDULED',
  'CLAIMED') AND jobboard.key IS NOT NULL AND jobboard.live_key IS NULL OR jobboard.state = 'TRASHED' AND NOT
  (jobboard.gone_on IS NOT NULL AND jobboard.gone_on > %(gone_on_1)s::BIGINT) OR jobboard.state = 'TRASHED' AND
  jobboard.gone_on IS NOT NULL AND jobboard.gone_on > %(gone_on_1)s::BIGINT AND jobboard.gone_on !=
  jobboard.modified_on OR jobboard.state IN ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') AND jobboard.gone_on IS NOT NULL
  AND jobboard.gone_on > %(gone_on_1)s::BIGINT OR jobboard.errors IS NOT NULL AND jobboard.errors NOT LIKE
  %(errors_1)s::VARCHAR OR jobboard.job_group = %(job_group_1)s::VARCHAR) ORDER BY jobboard.id
 LIMIT 500;
SELECT jobboard.id, jobboard.uuid, CASE WHEN (jobboard.state = 'UNCLAIMED' AND (jobboard.lock_until IS NOT NULL OR
  jobboard.wake_at IS NOT NULL)) THEN %(param_2)s::VARCHAR ELSE %(param_3)s::VARCHAR END AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.id > %(p_id)s::BIGINT AND (jobboard.state = 'UNCLAIMED' AND
  (jobboard.lock_until IS NOT NULL OR jobboard.wake_at IS NOT NULL) OR jobboard.state = 'TRASHED' AND
  jobboard.live_key IS NOT NULL) ORDER BY jobboard.id
 LIMIT 500;
SELECT count(*) AS count_1
FROM jobboard_answers
WHERE jobboard_answers.stamp < CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT;
SELECT count(*) AS count_1
FROM jobboard_outcomes
WHERE jobboard_outcomes.until < CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place > %(p_after)s::VARCHAR ORDER BY jobboard_sides.place
 LIMIT %(p_limit)s::INTEGER;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place > %(p_after)s::VARCHAR ORDER BY jobboard_sides.place
 LIMIT %(p_limit)s::INTEGER;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED') ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s::INTEGER;
SELECT jobboard_outcomes.uuid, jobboard_outcomes.name, jobboard_outcomes.priority, jobboard_outcomes.id,
  jobboard_outcomes.key, jobboard_outcomes.version, jobboard_outcomes.posting, jobboard_outcomes.attempts,
  jobboard_outcomes.max_attempts, jobboard_outcomes.token, jobboard_outcomes.who, jobboard_outcomes.created_on,
  jobboard_outcomes.begun, jobboard_outcomes.modified_on, jobboard_outcomes.until, jobboard_outcomes.errors,
  jobboard_outcomes.retries, jobboard_outcomes.job_group, jobboard_outcomes.result, jobboard_outcomes.refused
FROM jobboard_outcomes
WHERE jobboard_outcomes.until + 0 > CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AND
  jobboard_outcomes.board = %(p_board)s::VARCHAR ORDER BY jobboard_outcomes.modified_on DESC, jobboard_outcomes.id
  DESC
 LIMIT %(p_limit)s::BIGINT;
