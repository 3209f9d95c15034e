WITH taken_jobboard AS
(DELETE FROM jobboard WHERE jobboard.uuid = %(p_uuid)s::VARCHAR AND coalesce(jobboard.board, '') =
  %(p_board)s::VARCHAR AND jobboard.token = %(p_token)s::BIGINT AND jobboard.who IS NOT NULL AND (jobboard.state =
  'UNCLAIMED' OR jobboard.state = 'CLAIMED' AND (jobboard.lock_until > CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) OR jobboard.max_attempts IS NULL OR jobboard.attempts <
  jobboard.max_attempts)) AND (jobboard.key_until IS NULL OR jobboard.key_until <= CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT)) RETURNING jobboard.id),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, '* 1', CAST(date_part('epoch', statement_timestamp())
  * 1000000 AS BIGINT) AS anon_4
FROM taken_jobboard ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_3)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END)
 SELECT 1 AS anon_5
FROM taken_jobboard;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …);
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s::VARCHAR, …) AND coalesce(jobboard.board, '') = %(p_board)s::VARCHAR;
BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT pg_notify(%(p_channel)s::VARCHAR, %(p_board)s::VARCHAR) AS pg_notify_1;
DELETE FROM jobboard_sides WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind =
  %(p_kind)s::VARCHAR AND jobboard_sides.place = %(p_place)s::VARCHAR AND jobboard_sides.version = %(p_was)s::BIGINT;
COMMIT;
