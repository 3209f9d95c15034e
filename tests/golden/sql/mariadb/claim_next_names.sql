SELECT anon_1.id, anon_1.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard FORCE INDEX (jobboard_by_name)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.name =
  %(p_name0)s ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s) AS anon_1 UNION ALL SELECT anon_2.id, anon_2.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard FORCE INDEX (jobboard_by_name)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.name =
  %(p_name1)s ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s) AS anon_2;
SELECT json_array(jobboard.uuid COLLATE utf8mb4_bin, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`,
  jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token,
  jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6))) AS json_array_1
FROM jobboard FORCE INDEX (PRIMARY)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND (%(p_swept)s = 1 OR
  (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) IS NULL OR (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) > TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) AND jobboard.id IN (…) ORDER BY
  jobboard.priority, jobboard.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED;
BEGIN NOT ATOMIC
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 600000000) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
IF ROW_COUNT() = 0 THEN
INSERT INTO jobboard_answers (handle, slot, `call`, answer, stamp) VALUES (%(p_handle)s, %(p_slot)s, %(p_call)s,
  %(p_answer)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)));
END IF;
UPDATE jobboard FORCE INDEX (PRIMARY) SET state='CLAIMED', attempts=(jobboard.attempts + 1),
  token=greatest(jobboard.token + 1, %(p_now)s), who=%(p_who)s, keeper=%(p_keeper)s, lock_until=(%(p_now)s +
  %(p_ttl)s), modified_on=%(p_now)s, wake_at=(%(p_now)s + %(p_ttl)s), returned=NULL, spare='' WHERE jobboard.id IN
  (%(p_ids_1)s, …) AND coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s;
IF ROW_COUNT() <> %(p_count)s THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'not all of these claims stand';
END IF;
COMMIT;
END;
