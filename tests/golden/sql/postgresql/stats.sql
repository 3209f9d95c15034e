SELECT 'UNCLAIMED' AS anon_1, '' AS anon_2, count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' UNION ALL SELECT jobboard.state, '' AS
  anon_3, count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL AND jobboard.state != 'UNCLAIMED' GROUP
  BY jobboard.state UNION ALL SELECT 'TRASHED' AS anon_4, '' AS anon_5, count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.gone_on > %(gone_on_1)s::BIGINT UNION ALL SELECT
  jobboard.state, CASE WHEN (jobboard.lock_until IS NULL OR jobboard.lock_until > CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT)) THEN jobboard.state WHEN (jobboard.state = 'CLAIMED' AND
  jobboard.attempts >= jobboard.max_attempts) THEN 'TRASHED' ELSE 'UNCLAIMED' END AS anon_6, count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at <= CAST(date_part('epoch', statement_timestamp()) *
  1000000 AS BIGINT) AND jobboard.lock_until <= CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)
  GROUP BY jobboard.state, CASE WHEN (jobboard.lock_until IS NULL OR jobboard.lock_until > CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT)) THEN jobboard.state WHEN (jobboard.state = 'CLAIMED' AND
  jobboard.attempts >= jobboard.max_attempts) THEN 'TRASHED' ELSE 'UNCLAIMED' END;
