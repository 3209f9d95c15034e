SELECT json_array(jobboard.uuid COLLATE utf8mb4_bin, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`,
  jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token,
  jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)), (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1)) AS json_array_1
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s ORDER BY
  jobboard.priority, jobboard.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED;
ROLLBACK;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1, (SELECT jobboard.wake_at AS
  event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_2;
ROLLBACK;
