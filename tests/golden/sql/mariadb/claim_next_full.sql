SELECT CONCAT('[', GROUP_CONCAT(IF(served.fits, served.id, NULL) ORDER BY served.priority, served.id
  LIMIT %(p_reach)s), ']'), max(served.seen) AS max_1, min(served.room) AS min_1
FROM (SELECT turned.id AS id, turned.priority AS priority, turned.seen AS seen, turned.room AS room, turned.`left`
  >= 0 AND coalesce(sum(turned.`left` > 0 AND turned.turn >= %(p_turns)s) OVER (ORDER BY turned.priority, turned.id
  ROWS BETWEEN UNBOUNDED PRECEDING AND %(param_3)s PRECEDING), 0) = 0 AS fits
FROM (SELECT ruled.id AS id, ruled.priority AS priority, ruled.turn AS turn, ruled.seen AS seen, ruled.room AS room,
  CASE WHEN (ruled.name IS NULL) THEN %(p_turns)s ELSE ruled.room - row_number() OVER (PARTITION BY ruled.name,
  ruled.job_group ORDER BY ruled.priority, ruled.id) END AS `left`
FROM (SELECT some.id AS id, some.priority AS priority, some.turn AS turn, some.seen AS seen, rule.name AS name, CASE
  WHEN (rule.per_group = 1) THEN some.job_group END AS job_group, coalesce((SELECT CASE WHEN (length(listed.value)
  <= 5400) THEN greatest(rule.most - (SELECT STRAIGHT_JOIN count(*) AS count_1
FROM JSON_TABLE(IF(listed.value REGEXP '^([0-9a-f-]{36} [0-9]{16},)+$', CONCAT('[["', REPLACE(REPLACE(
  TRIM(TRAILING ',' FROM CONVERT(listed.value USING utf8mb4)), ',', '"],["'), ' ', '","'), '"]]'), '[]'),
  '$[*]' COLUMNS (uuid VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH '$[0]', token BIGINT PATH
  '$[1]')) AS claim, jobboard AS held FORCE INDEX (jobboard_uuid)
WHERE held.uuid = claim.uuid AND held.board = %(p_board)s AND held.token = claim.token AND held.state = 'CLAIMED'),
  0) ELSE rule.most END AS anon_1
FROM jobboard_sides AS listed
WHERE listed.board = %(p_board)s AND listed.kind = 'scope' AND listed.place = sha2(CASE WHEN (rule.per_group = 1)
  THEN concat(some.name, CHAR(10 USING utf8mb4), some.job_group) ELSE some.name END, 256)), rule.most) AS room
FROM (SELECT lined.id AS id, lined.priority AS priority, lined.name AS name, lined.job_group AS job_group,
  lined.turn AS turn, lined.seen AS seen
FROM (SELECT page.id AS id, page.priority AS priority, page.name AS name, page.job_group AS job_group, row_number()
  OVER (PARTITION BY page.name, page.job_group ORDER BY page.priority, page.id) AS turn, count(*) OVER () AS seen
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority, jobboard.name AS name, jobboard.job_group AS
  job_group
FROM jobboard FORCE INDEX (jobboard_ready)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s ORDER BY jobboard.priority,
  jobboard.id
 LIMIT 400) AS page) AS lined
WHERE lined.turn <= %(p_turns)s) AS some LEFT OUTER JOIN (SELECT given.name AS name, given.per_group AS per_group,
  given.most AS most
FROM JSON_TABLE(%(p_rules)s, '$[*]' COLUMNS (name VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin PATH
  '$[0]', per_group INT PATH '$[1]',
  most INT PATH '$[2]')) AS given) AS rule ON some.name = rule.name AND (rule.per_group != 1 OR some.job_group IS
  NOT NULL)) AS ruled) AS turned) AS served;
BEGIN NOT ATOMIC
DECLARE l_now, l_event, l_id, l_token BIGINT; DECLARE l_told LONGTEXT CHARACTER SET utf8mb4;
DECLARE l_uuid VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin; DECLARE l_name, l_group VARCHAR(255)
  CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin;
SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1, (SELECT jobboard.wake_at AS
  event
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS anon_2 INTO l_now, l_event ;
IF %(p_swept)s OR l_event IS NULL OR l_event > l_now THEN
SELECT STRAIGHT_JOIN jobboard.id, jobboard.token, CASE WHEN (jobboard.attempts < 2147483647 AND jobboard.token <
  9223372036854775807) THEN json_array(jobboard.uuid COLLATE utf8mb4_bin, jobboard.name, jobboard.priority,
  jobboard.id, jobboard.`key`, jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts,
  jobboard.max_attempts, jobboard.token, jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on,
  jobboard.modified_on, jobboard.errors, jobboard.retries, jobboard.job_group, jobboard.key_until, l_now + 0) END AS
  anon_1, jobboard.uuid, jobboard.name, jobboard.job_group
FROM JSON_TABLE(%(p_ids)s, '$[*]' COLUMNS (id BIGINT PATH '$')) AS found, jobboard FORCE INDEX (PRIMARY)
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s AND
  coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) = %(p_gate)s AND jobboard.id = found.id
 LIMIT %(p_limit)s FOR UPDATE SKIP LOCKED INTO l_id, l_token, l_told, l_uuid, l_name, l_group ;
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
IF l_name = %(p_rule_name)s AND (NOT %(p_per_group)s OR l_group IS NOT NULL) THEN
BEGIN DECLARE l_key LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT IF(%(p_per_group)s,
  CONCAT(l_name, CHAR(10 USING utf8mb4), l_group), l_name);
DECLARE l_place VARCHAR(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT SHA2(l_key, 256);
DECLARE l_part LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin DEFAULT CONCAT(l_uuid, ' ', GREATEST(l_token
  + 1, l_now), ',');
INSERT INTO jobboard_sides (board, kind, place, `key`, value, version)
SELECT %(p_board)s, 'scope', l_place, l_key, l_part, %(p_version)s
FROM jobboard_sides AS gate WHERE gate.board = %(p_board)s AND gate.kind = 'gate' AND gate.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0' AND gate.version = %(p_gate)s LOCK IN SHARE
  MODE
ON DUPLICATE KEY UPDATE version = IF(MOD(LENGTH(jobboard_sides.value), 54) = 0 AND
  LENGTH(jobboard_sides.value) <= %(p_room)s, VALUES(version), jobboard_sides.version),
  value = IF(jobboard_sides.version = %(p_version)s, CONCAT(jobboard_sides.value, VALUES(value)),
  jobboard_sides.value);
IF LENGTH(l_part) <> 54 OR COALESCE((SELECT listed.version FROM jobboard_sides AS listed WHERE listed.board =
  %(p_board)s
  AND listed.kind = 'scope' AND listed.place = l_place), -1) <> %(p_version)s THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'this claim has no room for sure';
END IF; END; END IF;
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
