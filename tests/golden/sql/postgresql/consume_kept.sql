WITH taken_jobboard AS
(DELETE FROM jobboard WHERE jobboard.uuid = %(p_uuid)s::VARCHAR AND coalesce(jobboard.board, '') =
  %(p_board)s::VARCHAR AND jobboard.token = %(p_token)s::BIGINT AND jobboard.who IS NOT NULL AND (jobboard.state =
  'UNCLAIMED' OR jobboard.state = 'CLAIMED' AND jobboard.lock_until > CAST(date_part('epoch', statement_timestamp())
  * 1000000 AS BIGINT)) AND (jobboard.key_until IS NULL OR jobboard.key_until <= CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT)) RETURNING jobboard.uuid, jobboard.name, jobboard.priority,
  jobboard.id, jobboard.key, jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts,
  jobboard.max_attempts, jobboard.token, jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on,
  jobboard.modified_on, jobboard.errors, jobboard.retries, jobboard.job_group, jobboard.key_until, jobboard.board,
  jobboard.live_key, jobboard.wake_at, jobboard.returned, jobboard.spare, jobboard.gone_on),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, '* 1', CAST(date_part('epoch', statement_timestamp())
  * 1000000 AS BIGINT) AS anon_4
FROM taken_jobboard ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_3)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END),
left_jobboard AS
(INSERT INTO jobboard_outcomes (uuid, board, name, priority, id, key, version, posting, attempts, max_attempts,
  token, who, created_on, errors, retries, job_group, begun, modified_on, until, result, refused) SELECT
  taken_jobboard.uuid AS uuid, taken_jobboard.board AS board, taken_jobboard.name AS name, taken_jobboard.priority
  AS priority, taken_jobboard.id AS id, taken_jobboard.key AS key, taken_jobboard.version AS version,
  taken_jobboard.posting AS posting, taken_jobboard.attempts AS attempts, taken_jobboard.max_attempts AS
  max_attempts, taken_jobboard.token AS token, taken_jobboard.who AS who, taken_jobboard.created_on AS created_on,
  taken_jobboard.errors AS errors, taken_jobboard.retries AS retries, taken_jobboard.job_group AS job_group,
  taken_jobboard.modified_on AS modified_on, CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS
  anon_5, CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) + %(p_keep)s::BIGINT AS anon_6,
  %(p_result)s::VARCHAR AS anon_7, %(p_refused)s::VARCHAR AS anon_8
FROM taken_jobboard)
 SELECT 1 AS anon_9, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS coalesce_1
FROM taken_jobboard;
