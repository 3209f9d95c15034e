BEGIN NOT ATOMIC
DECLARE l_now, l_event, l_id, l_token BIGINT; DECLARE l_told LONGTEXT CHARACTER SET utf8mb4;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1, (SELECT jobboard.wake_at AS
  event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_2 INTO l_now, l_event ;
IF %(p_swept)s OR l_event IS NULL OR l_event > l_now THEN
SELECT jobboard.id, jobboard.token, CASE WHEN (jobboard.attempts < 2147483647 AND jobboard.token <
  9223372036854775807) THEN json_array(jobboard.uuid COLLATE utf8mb4_bin, jobboard.name, jobboard.priority,
  jobboard.id, jobboard.`key`, jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts,
  jobboard.max_attempts, jobboard.token, jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on,
  jobboard.modified_on, jobboard.errors, jobboard.retries, jobboard.job_group, jobboard.key_until, l_now + 0) END AS
  anon_1
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s ORDER BY jobboard.priority,
  jobboard.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED INTO l_id, l_token, l_told ;
IF l_told IS NOT NULL THEN
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=concat(l_id, ' ', greatest(l_token + 1, l_now)), stamp=CASE
  WHEN (jobboard_answers.stamp < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 600000000)
  THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE
  jobboard_answers.handle = %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` <
  %(p_call)s;
IF ROW_COUNT() = 0 THEN
INSERT INTO jobboard_answers (handle, slot, `call`, answer, stamp) VALUES (%(p_handle)s, %(p_slot)s, %(p_call)s,
  concat(l_id, ' ', greatest(l_token + 1, l_now)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)));
END IF;
UPDATE jobboard FORCE INDEX (PRIMARY) SET state='CLAIMED', attempts=(jobboard.attempts + 1),
  token=greatest(jobboard.token + 1, l_now), who=%(p_who)s, keeper=%(p_keeper)s, lock_until=(l_now + %(p_ttl)s),
  modified_on=l_now, wake_at=(l_now + %(p_ttl)s), returned=NULL, spare='' WHERE jobboard.id = l_id AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s;
IF ROW_COUNT() <> 1 THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'the rules are others now';
END IF;
SELECT l_told;
ELSEIF l_id IS NULL THEN
SELECT (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_1 INTO l_event ;
END IF; END IF;
IF l_told IS NULL THEN
SELECT json_array(l_id + 0, l_now + 0, l_event + 0, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0)) AS json_array_1;
END IF;
COMMIT;
END;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (jobboard_wake)
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at >= %(p_since)s AND jobboard.wake_at <=
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ORDER BY jobboard.wake_at
 LIMIT 100 FOR UPDATE SKIP LOCKED;
-- with many rows
UPDATE jobboard FORCE INDEX (PRIMARY) SET state=%(p_state)s, attempts=%(p_attempts)s, token=%(p_token)s,
  who=%(p_who)s, keeper=%(p_keeper)s, lock_until=%(p_lock_until)s, modified_on=%(p_modified_on)s,
  errors=%(p_errors)s, retries=%(p_retries)s, live_key=%(p_live_key)s, wake_at=%(p_wake_at)s, returned=CASE WHEN
  (%(p_state)s = 'UNCLAIMED') THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) END,
  spare='', gone_on=%(p_gone_on)s WHERE jobboard.id = %(p_id)s AND jobboard.token = %(p_was_token)s AND
  jobboard.state = %(p_was_state)s;
COMMIT;
BEGIN NOT ATOMIC
DECLARE l_now, l_event, l_id, l_token BIGINT; DECLARE l_told LONGTEXT CHARACTER SET utf8mb4;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1, (SELECT jobboard.wake_at AS
  event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_2 INTO l_now, l_event ;
IF %(p_swept)s OR l_event IS NULL OR l_event > l_now THEN
SELECT jobboard.id, jobboard.token, CASE WHEN (jobboard.attempts < 2147483647 AND jobboard.token <
  9223372036854775807) THEN json_array(jobboard.uuid COLLATE utf8mb4_bin, jobboard.name, jobboard.priority,
  jobboard.id, jobboard.`key`, jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts,
  jobboard.max_attempts, jobboard.token, jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on,
  jobboard.modified_on, jobboard.errors, jobboard.retries, jobboard.job_group, jobboard.key_until, l_now + 0) END AS
  anon_1
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s ORDER BY jobboard.priority,
  jobboard.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED INTO l_id, l_token, l_told ;
IF l_told IS NOT NULL THEN
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=concat(l_id, ' ', greatest(l_token + 1, l_now)), stamp=CASE
  WHEN (jobboard_answers.stamp < TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - 600000000)
  THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE
  jobboard_answers.handle = %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` <
  %(p_call)s;
IF ROW_COUNT() = 0 THEN
INSERT INTO jobboard_answers (handle, slot, `call`, answer, stamp) VALUES (%(p_handle)s, %(p_slot)s, %(p_call)s,
  concat(l_id, ' ', greatest(l_token + 1, l_now)), TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)));
END IF;
UPDATE jobboard FORCE INDEX (PRIMARY) SET state='CLAIMED', attempts=(jobboard.attempts + 1),
  token=greatest(jobboard.token + 1, l_now), who=%(p_who)s, keeper=%(p_keeper)s, lock_until=(l_now + %(p_ttl)s),
  modified_on=l_now, wake_at=(l_now + %(p_ttl)s), returned=NULL, spare='' WHERE jobboard.id = l_id AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s;
IF ROW_COUNT() <> 1 THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'the rules are others now';
END IF;
SELECT l_told;
ELSEIF l_id IS NULL THEN
SELECT (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_1 INTO l_event ;
END IF; END IF;
IF l_told IS NULL THEN
SELECT json_array(l_id + 0, l_now + 0, l_event + 0, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0)) AS json_array_1;
END IF;
COMMIT;
END;
