SELECT json_array(jobboard.uuid COLLATE utf8mb4_bin, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`,
  jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token,
  jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)), (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1)) AS json_array_1
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s ORDER BY jobboard.priority,
  jobboard.id
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
INSERT INTO jobboard_sides (board, kind, place, `key`, value, version)
SELECT STRAIGHT_JOIN %(p_board)s, 'scope', entry.place, entry.`key`, entry.part, %(p_version)s
FROM JSON_TABLE(%(p_entries)s, '$[*]' COLUMNS (place VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin
  PATH '$[0]',
  `key` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]', part LONGTEXT CHARACTER SET utf8mb4
  COLLATE utf8mb4_nopad_bin PATH '$[2]', room INT PATH '$[3]')) AS entry, jobboard_sides AS gate WHERE gate.board =
  %(p_board)s AND gate.kind = 'gate' AND gate.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0' AND gate.version = %(p_gate)s LOCK IN SHARE
  MODE
ON DUPLICATE KEY UPDATE version = IF(MOD(LENGTH(jobboard_sides.value), 54) = 0 AND
  LENGTH(jobboard_sides.value) <= entry.room, VALUES(version), jobboard_sides.version),
  value = IF(jobboard_sides.version = %(p_version)s, CONCAT(jobboard_sides.value, VALUES(value)),
  jobboard_sides.value);
IF (SELECT STRAIGHT_JOIN COUNT(*) FROM JSON_TABLE(%(p_entries)s, '$[*]' COLUMNS (place VARCHAR(64) CHARACTER SET
  utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]',
  `key` LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[1]', part LONGTEXT CHARACTER SET utf8mb4
  COLLATE utf8mb4_nopad_bin PATH '$[2]', room INT PATH '$[3]')) AS entry, jobboard_sides AS listed WHERE
  listed.board = %(p_board)s
  AND listed.kind = 'scope' AND listed.place = entry.place AND listed.version = %(p_version)s) <> %(p_number)s THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'not all of these claims have room for sure';
END IF;
COMMIT;
END;
ROLLBACK;
INSERT INTO jobboard_answers (handle, slot, `call`, answer, stamp) VALUES (%(p_handle)s, %(p_slot)s, %(call)s,
  %(answer)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) ON DUPLICATE KEY UPDATE handle =
  jobboard_answers.handle;
SELECT jobboard_answers.`call`, jobboard_answers.answer
FROM jobboard_answers
WHERE jobboard_answers.handle = %(p_handle)s AND jobboard_answers.slot = %(p_slot)s FOR UPDATE;
SELECT clock.now, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_1, jobboard_sides.value, jobboard_sides.version
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0' LOCK IN SHARE MODE;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_2
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s ORDER BY jobboard.priority,
  jobboard.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides FORCE INDEX (PRIMARY)
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place IN
  (%(p_places_1)s, …) ORDER BY jobboard_sides.place FOR UPDATE;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND jobboard.board = %(p_board)s;
SELECT clock.now, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_1, jobboard_sides.value, jobboard_sides.version
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0' LOCK IN SHARE MODE;
SELECT jobboard.id, jobboard.priority
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND (jobboard.job_group IS
  NULL OR jobboard.job_group != %(p_group_of0)s OR jobboard.name != %(p_name_of0)s) ORDER BY jobboard.priority,
  jobboard.id
 LIMIT 1;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_2
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.id IN (…) ORDER
  BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides FORCE INDEX (PRIMARY)
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place IN
  (%(p_places_1)s, …) ORDER BY jobboard_sides.place FOR UPDATE SKIP LOCKED;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place
  IN (%(p_places_1)s, …);
UPDATE jobboard SET state=%(p_state)s, attempts=%(p_attempts)s, token=%(p_token)s, who=%(p_who)s,
  keeper=%(p_keeper)s, lock_until=%(p_lock_until)s, modified_on=%(p_modified_on)s, errors=%(p_errors)s,
  retries=%(p_retries)s, live_key=%(p_live_key)s, wake_at=%(p_wake_at)s, returned=CASE WHEN (%(p_state)s =
  'UNCLAIMED') THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) END, spare='',
  gone_on=%(p_gone_on)s WHERE jobboard.id = %(p_id)s AND jobboard.token = %(p_was_token)s AND jobboard.state =
  %(p_was_state)s;
INSERT INTO jobboard_sides (board, kind, place, `key`, value, until, version) VALUES (%(p_board)s, %(p_kind)s,
  %(p_place)s, %(p_key)s, %(p_value)s, coalesce(%(p_until)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) + %(p_ttl)s), %(p_version)s) ON DUPLICATE KEY UPDATE board = jobboard_sides.board;
SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place = %(p_place)s;
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` <= %(p_call)s;
COMMIT;
