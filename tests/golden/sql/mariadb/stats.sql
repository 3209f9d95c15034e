SELECT 'UNCLAIMED' AS anon_1, '' AS anon_2, count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' UNION ALL SELECT jobboard.state, '' AS anon_3,
  count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL AND jobboard.state != 'UNCLAIMED' GROUP BY
  jobboard.state UNION ALL SELECT 'TRASHED' AS anon_4, '' AS anon_5, count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.gone_on > %(gone_on_1)s UNION ALL SELECT jobboard.state, CASE WHEN
  (jobboard.lock_until IS NULL OR jobboard.lock_until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6))) THEN jobboard.state WHEN (jobboard.state = 'CLAIMED' AND jobboard.attempts >=
  jobboard.max_attempts) THEN 'TRASHED' ELSE 'UNCLAIMED' END AS anon_6, count(*) AS count_1
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AND jobboard.lock_until <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))
  GROUP BY jobboard.state, CASE WHEN (jobboard.lock_until IS NULL OR jobboard.lock_until >
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) THEN jobboard.state WHEN (jobboard.state =
  'CLAIMED' AND jobboard.attempts >= jobboard.max_attempts) THEN 'TRASHED' ELSE 'UNCLAIMED' END;
ROLLBACK;
