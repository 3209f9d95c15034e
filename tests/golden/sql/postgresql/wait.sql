SELECT (SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s::BIGINT ORDER BY
  jobboard.priority, jobboard.id
 LIMIT 1) IS NOT NULL OR (EXISTS (SELECT *
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at <= CAST(date_part('epoch', statement_timestamp()) *
  1000000 AS BIGINT) AND jobboard.version <= %(p_readable)s::BIGINT AND (jobboard.state = 'UNCLAIMED' OR
  jobboard.lock_until <= CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AND (jobboard.state =
  'SCHEDULED' OR jobboard.state = 'CLAIMED' AND (jobboard.max_attempts IS NULL OR jobboard.attempts <
  jobboard.max_attempts))) AND coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s::BIGINT)) AS anon_1,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_2, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL AND jobboard.wake_at >
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_3, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS coalesce_1;
