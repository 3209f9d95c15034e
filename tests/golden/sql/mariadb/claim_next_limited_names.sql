SELECT clock.now, (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_1, jobboard_sides.value, jobboard_sides.version
FROM (SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0' LOCK IN SHARE MODE;
SELECT anon_1.id, anon_1.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard FORCE INDEX (jobboard_by_name)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.name =
  %(p_name0)s ORDER BY jobboard.priority, jobboard.id
 LIMIT 1) AS anon_1 UNION ALL SELECT anon_2.id, anon_2.priority
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority
FROM jobboard FORCE INDEX (jobboard_by_name)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.name =
  %(p_name1)s ORDER BY jobboard.priority, jobboard.id
 LIMIT 1) AS anon_2;
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
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.id IN (…) ORDER
  BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED;
SELECT jobboard_sides.`key`, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard_sides FORCE INDEX (PRIMARY)
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place IN
  (%(p_places_1)s, …) ORDER BY jobboard_sides.place FOR UPDATE;
UPDATE jobboard FORCE INDEX (PRIMARY) SET state=%(p_state)s, attempts=%(p_attempts)s, token=%(p_token)s,
  who=%(p_who)s, keeper=%(p_keeper)s, lock_until=%(p_lock_until)s, modified_on=%(p_modified_on)s,
  errors=%(p_errors)s, retries=%(p_retries)s, live_key=%(p_live_key)s, wake_at=%(p_wake_at)s, returned=CASE WHEN
  (%(p_state)s = 'UNCLAIMED') THEN TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) END,
  spare='', gone_on=%(p_gone_on)s WHERE jobboard.id = %(p_id)s AND jobboard.token = %(p_was_token)s AND
  jobboard.state = %(p_was_state)s;
UPDATE jobboard_sides SET value=%(p_value)s, until=coalesce(%(p_until)s, TIMESTAMPDIFF(MICROSECOND, '1970-01-01
  00:00:00', UTC_TIMESTAMP(6)) + %(p_ttl)s), version=%(p_version)s WHERE jobboard_sides.board = %(p_board)s AND
  jobboard_sides.kind = %(p_kind)s AND jobboard_sides.place = %(p_place)s AND jobboard_sides.version = %(p_was)s;
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
COMMIT;
