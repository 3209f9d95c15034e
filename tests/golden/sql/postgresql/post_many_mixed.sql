WITH answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_6,
  %(p_slot)s::INTEGER AS anon_7, %(p_call)s::BIGINT AS anon_8, %(p_done)s::VARCHAR AS anon_9,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_10 ON CONFLICT (handle, slot) DO
  UPDATE SET call = excluded.call, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_3)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END WHERE
  jobboard_answers.call < excluded.call RETURNING CASE WHEN (txid_current() IS NOT NULL) THEN
  CAST(date_part('epoch', clock_timestamp()) * 1000000 AS BIGINT) END AS now),
taken_jobboard AS
(INSERT INTO jobboard (uuid, name, priority, version, posting, max_attempts, job_group, board, state, attempts,
  retries, token, created_on, modified_on, lock_until, wake_at) SELECT anon_2.uuid AS uuid, anon_2.name AS name,
  anon_2.priority AS priority, anon_2.version AS version, anon_2.posting AS posting, anon_2.max_attempts AS
  max_attempts, anon_2.job_group AS job_group, %(p_board)s::VARCHAR AS anon_3, CASE WHEN (CASE WHEN
  (coalesce(anon_2.due, answer_jobboard.now + anon_2.delay) > answer_jobboard.now) THEN coalesce(anon_2.due,
  answer_jobboard.now + anon_2.delay) END IS NULL) THEN 'UNCLAIMED' ELSE 'SCHEDULED' END AS anon_4, 0, 0, 0,
  answer_jobboard.now AS now, answer_jobboard.now AS now__1, CASE WHEN (coalesce(anon_2.due, answer_jobboard.now +
  anon_2.delay) > answer_jobboard.now) THEN coalesce(anon_2.due, answer_jobboard.now + anon_2.delay) END AS anon_5,
  CASE WHEN (coalesce(anon_2.due, answer_jobboard.now + anon_2.delay) > answer_jobboard.now) THEN
  coalesce(anon_2.due, answer_jobboard.now + anon_2.delay) END AS anon__1
FROM unnest(CAST(string_to_array(%(p_uuid)s::VARCHAR, chr(30), chr(31)) AS TEXT[]),
  CAST(string_to_array(%(p_name)s::VARCHAR, chr(30), chr(31)) AS TEXT[]),
  CAST(string_to_array(%(p_priority)s::VARCHAR, chr(30), chr(31)) AS SMALLINT[]),
  CAST(string_to_array(%(p_version)s::VARCHAR, chr(30), chr(31)) AS INTEGER[]),
  CAST(string_to_array(%(p_posting)s::VARCHAR, chr(30), chr(31)) AS TEXT[]),
  CAST(string_to_array(%(p_max_attempts)s::VARCHAR, chr(30), chr(31)) AS INTEGER[]),
  CAST(string_to_array(%(p_job_group)s::VARCHAR, chr(30), chr(31)) AS TEXT[]),
  CAST(string_to_array(%(p_due)s::VARCHAR, chr(30), chr(31)) AS BIGINT[]),
  CAST(string_to_array(%(p_delay)s::VARCHAR, chr(30), chr(31)) AS BIGINT[])) WITH ORDINALITY AS anon_2(uuid, name,
  priority, version, posting, max_attempts, job_group, due, delay, place) JOIN answer_jobboard ON true ORDER BY
  anon_2.place RETURNING jobboard.id, jobboard.created_on)
 SELECT taken_jobboard.id, taken_jobboard.created_on, CAST((SELECT pg_notify(%(p_channel)s::VARCHAR,
  %(p_board)s::VARCHAR) AS pg_notify_1) AS VARCHAR) AS anon_1
FROM taken_jobboard ORDER BY taken_jobboard.id;
