SELECT jobboard.id, jobboard.priority
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND jobboard.priority < %(priority_1)s::SMALLINT ORDER BY jobboard.priority, jobboard.id
 LIMIT 1;
WITH taken AS
(UPDATE jobboard SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s::INTEGER),
  token=greatest(jobboard.token + %(token_1)s::BIGINT, (SELECT CAST(EXTRACT(epoch FROM clock_timestamp()) *
  %(param_2)s::INTEGER AS BIGINT) AS anon_5)), who=%(p_who)s::VARCHAR, keeper=%(p_keeper)s::VARCHAR,
  lock_until=((SELECT CAST(EXTRACT(epoch FROM clock_timestamp()) * %(param_2)s::INTEGER AS BIGINT) AS anon_5) +
  %(p_ttl)s::BIGINT), modified_on=(SELECT CAST(EXTRACT(epoch FROM clock_timestamp()) * %(param_2)s::INTEGER AS
  BIGINT) AS anon_5), wake_at=((SELECT CAST(EXTRACT(epoch FROM clock_timestamp()) * %(param_2)s::INTEGER AS BIGINT)
  AS anon_5) + %(p_ttl)s::BIGINT) WHERE jobboard.id = ANY (array((SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND jobboard.id = ANY (%(p_ids)s::BIGINT[]) AND jobboard.priority <
  %(priority_1)s::SMALLINT AND (%(p_swept)s OR NOT (EXISTS (SELECT *
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at <= CAST(EXTRACT(EPOCH FROM statement_timestamp()) *
  1000000 AS BIGINT)))) ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 FOR UPDATE SKIP LOCKED))) RETURNING jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id,
  jobboard.key, jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts,
  jobboard.token, jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on,
  jobboard.errors, jobboard.retries, jobboard.job_group),
answer AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, (SELECT string_agg(parts.part,
  %(string_agg_2)s::VARCHAR) AS string_agg_1
FROM (SELECT string_agg(CAST(taken.id AS TEXT), %(string_agg_3)s::VARCHAR) || %(string_agg_4)s::VARCHAR ||
  CAST(taken.token AS TEXT) AS part
FROM taken GROUP BY taken.token) AS parts) AS anon_4, CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS
  BIGINT) AS anon_6
FROM taken
HAVING count(*) > %(count_1)s::INTEGER ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN
  (jobboard_answers.call < excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN
  (jobboard_answers.stamp < CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_5)s::BIGINT) THEN CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) ELSE
  jobboard_answers.stamp END),
event AS
(SELECT (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS event)
 SELECT taken.uuid, taken.name, taken.priority, taken.id, taken.key, taken.version, taken.posting, taken.state,
  taken.attempts, taken.max_attempts, taken.token, taken.who, taken.keeper, taken.lock_until, taken.created_on,
  taken.modified_on, taken.errors, taken.retries, taken.job_group, CAST(EXTRACT(EPOCH FROM statement_timestamp()) *
  1000000 AS BIGINT) AS anon_6, event.event, CASE WHEN (taken.uuid IS NULL) THEN (SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND jobboard.id = ANY (%(p_ids)s::BIGINT[]) AND jobboard.priority <
  %(priority_1)s::SMALLINT ORDER BY jobboard.priority, jobboard.id
 LIMIT 1) IS NOT NULL ELSE false END AS anon_7
FROM event LEFT OUTER JOIN taken ON true;
