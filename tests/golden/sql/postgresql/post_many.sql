WITH answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_10,
  %(p_slot)s::INTEGER AS anon_11, %(p_call)s::BIGINT AS anon_12, %(p_done)s::VARCHAR AS anon_13,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_14 ON CONFLICT (handle, slot) DO
  UPDATE SET call = excluded.call, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_2)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END WHERE
  jobboard_answers.call < excluded.call RETURNING CASE WHEN (txid_current() IS NOT NULL) THEN
  CAST(date_part('epoch', clock_timestamp()) * 1000000 AS BIGINT) END AS now),
taken_jobboard AS
(INSERT INTO jobboard (uuid, name, priority, version, posting, max_attempts, job_group, board, state, attempts,
  retries, token, created_on, modified_on) SELECT anon_2.uuid AS uuid, %(p_name)s::VARCHAR AS anon_3,
  %(p_priority)s::SMALLINT AS anon_4, %(p_version)s::INTEGER AS anon_5, anon_2.posting AS posting,
  %(p_max_attempts)s::INTEGER AS anon_6, %(p_job_group)s::VARCHAR AS anon_7, %(p_board)s::VARCHAR AS anon_8,
  'UNCLAIMED' AS anon_9, 0, 0, 0, answer_jobboard.now AS now, answer_jobboard.now AS now__1
FROM unnest(CAST(string_to_array(%(p_uuid)s::VARCHAR, chr(30), chr(31)) AS TEXT[]),
  CAST(string_to_array(%(p_posting)s::VARCHAR, chr(30), chr(31)) AS TEXT[])) WITH ORDINALITY AS anon_2(uuid,
  posting, place) JOIN answer_jobboard ON true ORDER BY anon_2.place RETURNING jobboard.id, jobboard.created_on)
 SELECT taken_jobboard.id, taken_jobboard.created_on, CAST((SELECT pg_notify(%(p_channel)s::VARCHAR,
  %(p_board)s::VARCHAR) AS pg_notify_1) AS VARCHAR) AS anon_1
FROM taken_jobboard ORDER BY taken_jobboard.id;
