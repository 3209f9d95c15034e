SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …);
BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …) ORDER BY jobboard_sides.place FOR UPDATE;
SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1;
SELECT pg_notify(%(p_channel)s::VARCHAR, %(p_board)s::VARCHAR) AS pg_notify_1;
SELECT CAST(pg_advisory_xact_lock(hashtextextended('jobboard ' || %(p_board)s::VARCHAR, 0)) AS VARCHAR) AS
  pg_advisory_xact_lock_1;
INSERT INTO jobboard_sides (board, kind, place, key, value, until, version) VALUES (%(p_board)s::VARCHAR,
  %(p_kind)s::VARCHAR, %(p_place)s::VARCHAR, %(p_key)s::VARCHAR, %(p_value)s, coalesce(%(p_until)s::BIGINT,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) + %(p_ttl)s::BIGINT), %(p_version)s::BIGINT)
  ON CONFLICT DO NOTHING;
SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place = %(p_place)s::VARCHAR;
UPDATE jobboard_answers SET call=%(p_call)s::BIGINT, answer=%(p_answer)s::VARCHAR, stamp=CASE WHEN
  (jobboard_answers.stamp < CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT) THEN CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE
  jobboard_answers.stamp END WHERE jobboard_answers.handle = %(p_handle)s::VARCHAR AND jobboard_answers.slot =
  %(p_slot)s::BIGINT AND jobboard_answers.call < %(p_call)s::BIGINT;
COMMIT;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …);
SELECT lock.virtualtransaction
FROM pg_locks AS lock
WHERE lock.database = (SELECT pg_database.oid
FROM pg_database
WHERE pg_database.datname = current_database()) AND lock.pid IS DISTINCT FROM pg_backend_pid() AND (lock.relation =
  CAST(to_regclass(%(param_1)s::VARCHAR) AS OID) AND lock.mode = %(param_2)s::VARCHAR OR lock.relation =
  CAST(to_regclass(%(param_3)s::VARCHAR) AS OID) AND lock.mode = %(param_4)s::VARCHAR);
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED') AND jobboard.name IN (%(p_names_1)s::VARCHAR, …) AND jobboard.state = 'CLAIMED' ORDER
  BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s::INTEGER;
