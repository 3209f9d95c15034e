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
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END),
leaving_jobboard AS MATERIALIZED
(SELECT anon_9.place AS place, anon_9.key AS key, anon_9.part AS part, anon_9.size AS size
FROM json_to_recordset(CAST(%(p_exits)s::VARCHAR AS JSON)) AS anon_9(place VARCHAR, key VARCHAR, part VARCHAR, size
  INTEGER) JOIN LATERAL (SELECT jobboard_sides.place AS place
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'scope' AND jobboard_sides.place =
  anon_9.place
 LIMIT 1 FOR UPDATE SKIP LOCKED) AS found ON true
WHERE (SELECT count(*) AS count_2
FROM taken_jobboard) > 0),
exited_jobboard AS
(INSERT INTO jobboard_sides (board, kind, place, key, value, version) SELECT %(p_board)s::VARCHAR AS anon_7,
  'scope', leaving_jobboard.place AS place, leaving_jobboard.key AS key, convert_to(leaving_jobboard.part, 'UTF8')
  AS convert_to_1, CAST(random() * 4e18 AS BIGINT) AS anon_8
FROM leaving_jobboard
WHERE true ORDER BY leaving_jobboard.place ON CONFLICT (board, kind, place) DO UPDATE SET value =
  convert_to(regexp_replace(encode(jobboard_sides.value, 'escape'), rtrim(replace(convert_from(excluded.value,
  'UTF8'), ',', ',|'), '|'), '', 'g'), 'UTF8'), version = (jobboard_sides.version + 1) WHERE
  mod(length(jobboard_sides.value), 54) = 0 RETURNING jobboard_sides.place, length(jobboard_sides.value) AS "left")
 SELECT 1 AS anon_5, (SELECT count(*) AS count_1
FROM exited_jobboard) AS anon_6, CAST((SELECT pg_notify(%(p_channel)s::VARCHAR, %(p_board)s::VARCHAR) AS pg_notify_1
WHERE EXISTS (SELECT exited_jobboard.place
FROM exited_jobboard, leaving_jobboard
WHERE exited_jobboard.place = leaving_jobboard.place AND exited_jobboard."left" >= leaving_jobboard.size
 LIMIT 1)) AS VARCHAR) AS anon_10
FROM taken_jobboard;
