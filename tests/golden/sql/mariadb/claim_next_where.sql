SELECT jobboard.id, jobboard.priority
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.priority <
  %(priority_1)s ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1, (SELECT jobboard.wake_at AS
  event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_2, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS coalesce_1;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (PRIMARY)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.id IN (…) AND
  jobboard.priority < %(priority_1)s ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED;
UPDATE jobboard FORCE INDEX (PRIMARY) SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s),
  token=greatest(jobboard.token + %(token_1)s, %(p_now)s), who=%(p_who)s, keeper=%(p_keeper)s, lock_until=(%(p_now)s
  + %(p_ttl)s), modified_on=%(p_now)s, wake_at=(%(p_now)s + %(p_ttl)s), returned=NULL, spare='' WHERE jobboard.id IN
  (…) AND coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s;
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
COMMIT;
