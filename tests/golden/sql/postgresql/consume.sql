WITH taken_jobboard AS
(DELETE FROM jobboard WHERE jobboard.uuid = %(p_uuid)s::VARCHAR AND coalesce(jobboard.board, '') =
  %(p_board)s::VARCHAR AND jobboard.token = %(p_token)s::BIGINT AND jobboard.who IS NOT NULL AND (jobboard.state =
  'UNCLAIMED' OR jobboard.state = 'CLAIMED' AND jobboard.lock_until > CAST(date_part('epoch', statement_timestamp())
  * 1000000 AS BIGINT)) AND (jobboard.key_until IS NULL OR jobboard.key_until <= CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT)) RETURNING jobboard.id),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, '* 1', CAST(date_part('epoch', statement_timestamp())
  * 1000000 AS BIGINT) AS anon_4
FROM taken_jobboard ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_3)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END)
 SELECT 1 AS anon_5, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS coalesce_1
FROM taken_jobboard;
