WITH clock AS
(SELECT CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) AS now),
taken AS
(INSERT INTO jobboard (uuid, name, priority, version, posting, max_attempts, job_group, state, attempts, retries,
  token, lock_until, wake_at, created_on, modified_on, board) SELECT anon_5.uuid AS uuid, anon_5.name AS name,
  anon_5.priority AS priority, anon_5.version AS version, anon_5.posting AS posting, anon_5.max_attempts AS
  max_attempts, anon_5.job_group AS job_group, CASE WHEN (CASE WHEN (coalesce(anon_5.due, clock.now + anon_5.delay)
  > clock.now) THEN coalesce(anon_5.due, clock.now + anon_5.delay) END IS NULL) THEN 'UNCLAIMED' ELSE 'SCHEDULED'
  END AS anon_6, %(param_3)s::INTEGER AS anon_7, %(param_4)s::INTEGER AS anon_8, %(param_5)s::INTEGER AS anon_9,
  CASE WHEN (coalesce(anon_5.due, clock.now + anon_5.delay) > clock.now) THEN coalesce(anon_5.due, clock.now +
  anon_5.delay) END AS anon_10, CASE WHEN (coalesce(anon_5.due, clock.now + anon_5.delay) > clock.now) THEN
  coalesce(anon_5.due, clock.now + anon_5.delay) END AS anon__1, clock.now AS now, clock.now AS now__1,
  %(p_board)s::VARCHAR AS anon_11
FROM unnest(%(p_uuid)s::VARCHAR[], %(p_name)s::VARCHAR[], %(p_priority)s::SMALLINT[], %(p_version)s::INTEGER[],
  %(p_posting)s::TEXT[], %(p_max_attempts)s::INTEGER[], %(p_job_group)s::VARCHAR[], %(p_due)s::BIGINT[],
  %(p_delay)s::BIGINT[]) WITH ORDINALITY AS anon_5(uuid, name, priority, version, posting, max_attempts, job_group,
  due, delay, place) JOIN clock ON true ORDER BY anon_5.place RETURNING jobboard.uuid, jobboard.id AS token,
  jobboard.created_on),
answer AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, string_agg(taken.uuid || %(uuid_1)s::VARCHAR ||
  CAST(taken.token AS TEXT), %(string_agg_2)s::VARCHAR) AS string_agg_1, CAST(EXTRACT(EPOCH FROM
  statement_timestamp()) * 1000000 AS BIGINT) AS anon_4
FROM taken
HAVING count(*) > %(count_1)s::INTEGER ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN
  (jobboard_answers.call < excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN
  (jobboard_answers.stamp < CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_6)s::BIGINT) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) ELSE
  jobboard_answers.stamp END)
 SELECT taken.uuid, taken.token, taken.created_on, CAST((SELECT pg_notify(%(p_channel)s::VARCHAR,
  %(p_board)s::VARCHAR) AS pg_notify_1
WHERE %(p_notify)s) AS VARCHAR) AS anon_12
FROM taken;
