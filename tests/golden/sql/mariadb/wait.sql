SELECT (SELECT jobboard.id
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s ORDER BY
  jobboard.priority, jobboard.id
 LIMIT 1) IS NOT NULL OR (EXISTS (SELECT *
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AND jobboard.version <= %(p_readable)s AND (jobboard.state = 'UNCLAIMED' OR jobboard.lock_until
  <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AND (jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED' AND (jobboard.max_attempts IS NULL OR jobboard.attempts < jobboard.max_attempts))))) AS
  anon_1, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_2, (SELECT jobboard.wake_at AS
  event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL AND jobboard.wake_at >
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_3;
ROLLBACK;
