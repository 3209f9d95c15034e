SELECT jobboard.state, '' AS anon_1, count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR GROUP BY jobboard.state UNION ALL SELECT jobboard.state, CASE WHEN
  (jobboard.lock_until IS NULL OR jobboard.lock_until > CAST(date_part('epoch', statement_timestamp()) * 1000000 AS
  BIGINT)) THEN jobboard.state WHEN (jobboard.state = 'CLAIMED' AND jobboard.attempts >= jobboard.max_attempts) THEN
  'TRASHED' ELSE 'UNCLAIMED' END AS anon_2, count(*) AS count_2
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at <= CAST(date_part('epoch', statement_timestamp()) *
  1000000 AS BIGINT) AND jobboard.lock_until <= CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)
  GROUP BY jobboard.state, CASE WHEN (jobboard.lock_until IS NULL OR jobboard.lock_until > CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT)) THEN jobboard.state WHEN (jobboard.state = 'CLAIMED' AND
  jobboard.attempts >= jobboard.max_attempts) THEN 'TRASHED' ELSE 'UNCLAIMED' END;
