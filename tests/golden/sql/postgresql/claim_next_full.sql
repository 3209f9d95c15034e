WITH clock_jobboard AS MATERIALIZED
(SELECT CASE WHEN (txid_current() IS NOT NULL) THEN CAST(date_part('epoch', clock_timestamp()) * 1000000 AS BIGINT)
  END AS now),
seen_jobboard AS
(SELECT (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS event, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS gate),
picked_jobboard AS MATERIALIZED
(SELECT jobboard.id AS id, jobboard.uuid AS uuid, jobboard.name AS name, jobboard.job_group AS job_group,
  greatest(jobboard.token + %(token_2)s::BIGINT, (SELECT clock_jobboard.now
FROM clock_jobboard)) AS token
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND (SELECT seen_jobboard.gate = %(p_gate)s::BIGINT AND (seen_jobboard.event <=
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)) IS NOT true AS anon_6
FROM seen_jobboard) ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 FOR UPDATE OF jobboard SKIP LOCKED),
entered_jobboard AS
(UPDATE jobboard_sides SET value=(jobboard_sides.value || (SELECT convert_to(picked_jobboard.uuid || ' ' ||
  CAST(picked_jobboard.token AS TEXT) || ',', 'UTF8') AS convert_to_1
FROM picked_jobboard)), version=(jobboard_sides.version + 1) WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND
  jobboard_sides.kind = 'scope' AND jobboard_sides.place = (SELECT encode(sha256(convert_to(CASE WHEN
  %(p_per_group)s THEN picked_jobboard.name || chr(10) || picked_jobboard.job_group ELSE picked_jobboard.name END,
  'UTF8')), 'hex') AS encode_1
FROM picked_jobboard
WHERE %(p_rule_name)s::VARCHAR = picked_jobboard.name AND (NOT %(p_per_group)s OR picked_jobboard.job_group IS NOT
  NULL)) AND mod(length(jobboard_sides.value), 54) = 0 AND length(jobboard_sides.value) < %(p_most)s::BIGINT * 54
  RETURNING jobboard_sides.place),
taken_jobboard AS
(UPDATE jobboard SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s::INTEGER),
  token=greatest(jobboard.token + %(token_1)s::BIGINT, clock_jobboard.now), who=%(p_who)s::VARCHAR,
  keeper=%(p_keeper)s::VARCHAR, lock_until=(clock_jobboard.now + %(p_ttl)s::BIGINT), modified_on=clock_jobboard.now,
  wake_at=(clock_jobboard.now + %(p_ttl)s::BIGINT) FROM clock_jobboard WHERE jobboard.id = (SELECT
  picked_jobboard.id
FROM picked_jobboard
WHERE NOT (%(p_rule_name)s::VARCHAR = picked_jobboard.name AND (NOT %(p_per_group)s OR picked_jobboard.job_group IS
  NOT NULL)) OR (EXISTS (SELECT entered_jobboard.place
FROM entered_jobboard))) RETURNING jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key,
  jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token,
  jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, CAST(taken_jobboard.id AS TEXT) || ' ' ||
  CAST(taken_jobboard.token AS TEXT) AS anon_4, CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)
  AS anon_5
FROM taken_jobboard ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_7)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END)
 SELECT taken_jobboard.uuid, taken_jobboard.name, taken_jobboard.priority, taken_jobboard.id, taken_jobboard.key,
  taken_jobboard.version, taken_jobboard.posting, taken_jobboard.state, taken_jobboard.attempts,
  taken_jobboard.max_attempts, taken_jobboard.token, taken_jobboard.who, taken_jobboard.keeper,
  taken_jobboard.lock_until, taken_jobboard.created_on, taken_jobboard.modified_on, taken_jobboard.errors,
  taken_jobboard.retries, taken_jobboard.job_group, taken_jobboard.key_until, CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) AS anon_7, seen_jobboard.event, false AS anon_8, seen_jobboard.gate,
  CASE WHEN (taken_jobboard.uuid IS NOT NULL OR seen_jobboard.gate != %(p_gate)s::BIGINT) THEN NULL WHEN ((SELECT
  jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT ORDER BY jobboard.priority, jobboard.id
 LIMIT 1) IS NOT NULL) THEN 'more' END AS anon_9
FROM seen_jobboard LEFT OUTER JOIN taken_jobboard ON true;
WITH clock_jobboard AS MATERIALIZED
(SELECT CASE WHEN (txid_current() IS NOT NULL) THEN CAST(date_part('epoch', clock_timestamp()) * 1000000 AS BIGINT)
  END AS now),
seen_jobboard AS
(SELECT (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS event, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS gate),
picked_jobboard AS MATERIALIZED
(SELECT jobboard.id AS id, jobboard.uuid AS uuid, jobboard.name AS name, jobboard.job_group AS job_group,
  greatest(jobboard.token + %(token_1)s::BIGINT, (SELECT clock_jobboard.now
FROM clock_jobboard)) AS token
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND (SELECT seen_jobboard.gate = %(p_gate)s::BIGINT AND (seen_jobboard.event <=
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)) IS NOT true AS anon_7
FROM seen_jobboard) ORDER BY jobboard.priority, jobboard.id
 LIMIT 1 FOR UPDATE OF jobboard SKIP LOCKED),
wanted_jobboard AS MATERIALIZED
(SELECT wanted.key AS key, wanted.place AS place, wanted.number AS number, wanted.most AS most, wanted.part AS part,
  coalesce((SELECT length(jobboard_sides.value) AS length_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'scope' AND jobboard_sides.place =
  wanted.place
 LIMIT 1), 0) AS size
FROM (SELECT CASE WHEN rule.per_group THEN picked_jobboard.name || chr(10) || picked_jobboard.job_group ELSE
  picked_jobboard.name END AS key, encode(sha256(convert_to(CASE WHEN rule.per_group THEN picked_jobboard.name ||
  chr(10) || picked_jobboard.job_group ELSE picked_jobboard.name END, 'UTF8')), 'hex') AS place, 1 AS number,
  rule.most AS most, picked_jobboard.uuid || ' ' || CAST(picked_jobboard.token AS TEXT) || ',' AS part
FROM (VALUES (%(p_rule_name)s::VARCHAR, %(p_per_group)s, %(p_most)s::BIGINT)) AS rule (name, per_group, most),
  picked_jobboard
WHERE picked_jobboard.name = rule.name AND (NOT rule.per_group OR picked_jobboard.job_group IS NOT NULL)) AS
  wanted),
entered_jobboard AS
(INSERT INTO jobboard_sides (board, kind, place, key, value, version) SELECT %(p_board)s::VARCHAR AS anon_5,
  'scope', wanted_jobboard.place AS place, wanted_jobboard.key AS key, convert_to(wanted_jobboard.part, 'UTF8') AS
  convert_to_1, CAST(random() * 4e18 AS BIGINT) AS anon_6
FROM wanted_jobboard
WHERE (SELECT coalesce(bool_and(length(wanted_jobboard.part) = wanted_jobboard.number * 54 AND
  mod(wanted_jobboard.size, 54) = 0 AND wanted_jobboard.size + wanted_jobboard.number * 54 <= wanted_jobboard.most *
  54), true) AS coalesce_1
FROM wanted_jobboard) ORDER BY wanted_jobboard.place ON CONFLICT (board, kind, place) DO UPDATE SET value =
  (jobboard_sides.value || excluded.value), version = (jobboard_sides.version + 1) WHERE
  mod(length(jobboard_sides.value), 54) = 0 AND length(jobboard_sides.value) + length(excluded.value) <= (SELECT
  wanted_jobboard.most
FROM wanted_jobboard
WHERE wanted_jobboard.place = excluded.place) * 54 RETURNING jobboard_sides.place),
taken_jobboard AS
(UPDATE jobboard SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s::INTEGER),
  token=greatest(jobboard.token + %(token_2)s::BIGINT, clock_jobboard.now), who=%(p_who)s::VARCHAR,
  keeper=%(p_keeper)s::VARCHAR, lock_until=(clock_jobboard.now + %(p_ttl)s::BIGINT), modified_on=clock_jobboard.now,
  wake_at=(clock_jobboard.now + %(p_ttl)s::BIGINT) FROM clock_jobboard WHERE jobboard.id = ANY (array((SELECT
  picked_jobboard.id
FROM picked_jobboard
WHERE (SELECT coalesce(bool_and(length(wanted_jobboard.part) = wanted_jobboard.number * 54 AND
  mod(wanted_jobboard.size, 54) = 0 AND wanted_jobboard.size + wanted_jobboard.number * 54 <= wanted_jobboard.most *
  54), true) AS coalesce_1
FROM wanted_jobboard)))) RETURNING jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key,
  jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token,
  jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, CASE WHEN ((SELECT count(*) AS count_1
FROM entered_jobboard) = (SELECT count(*) AS count_2
FROM wanted_jobboard)) THEN told.anon_8 END AS anon_4, CAST(date_part('epoch', statement_timestamp()) * 1000000 AS
  BIGINT) AS anon_9
FROM (SELECT CAST(taken_jobboard.id AS TEXT) || ' ' || CAST(taken_jobboard.token AS TEXT) AS anon_8
FROM taken_jobboard) AS told ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_7)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END)
 SELECT taken_jobboard.uuid, taken_jobboard.name, taken_jobboard.priority, taken_jobboard.id, taken_jobboard.key,
  taken_jobboard.version, taken_jobboard.posting, taken_jobboard.state, taken_jobboard.attempts,
  taken_jobboard.max_attempts, taken_jobboard.token, taken_jobboard.who, taken_jobboard.keeper,
  taken_jobboard.lock_until, taken_jobboard.created_on, taken_jobboard.modified_on, taken_jobboard.errors,
  taken_jobboard.retries, taken_jobboard.job_group, taken_jobboard.key_until, CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) AS anon_10, seen_jobboard.event, false AS anon_11, seen_jobboard.gate,
  CASE WHEN (taken_jobboard.uuid IS NOT NULL OR seen_jobboard.gate != %(p_gate)s::BIGINT) THEN NULL WHEN ((SELECT
  jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT ORDER BY jobboard.priority, jobboard.id
 LIMIT 1) IS NOT NULL) THEN 'more' END AS anon_12
FROM seen_jobboard LEFT OUTER JOIN taken_jobboard ON true;
WITH RECURSIVE walk_jobboard(id, priority, open, shut, entered, found, steps) AS
(SELECT CAST(-1 AS BIGINT) AS id, CAST(-1 AS SMALLINT) AS priority, false AS open, CAST('{}' AS TEXT[]) COLLATE "C"
  AS shut, CAST('{}' AS TEXT[]) COLLATE "C" AS entered, 0 AS found, 0 AS steps UNION ALL SELECT job.id AS id,
  job.priority AS priority, room.closed IS NULL AS anon_7, walk_jobboard.shut || CASE WHEN (room.closed IS NULL)
  THEN room.filled ELSE room.closed END AS anon_8, walk_jobboard.entered || CASE WHEN (room.closed IS NULL) THEN
  room.entering END AS anon_9, walk_jobboard.found + CAST(room.closed IS NULL AS INTEGER) AS anon_10,
  walk_jobboard.steps + 1 AS anon_11
FROM walk_jobboard JOIN LATERAL (SELECT near.id AS id, near.priority AS priority, near.name AS name, near.job_group
  AS job_group
FROM (SELECT jobboard.id AS id, jobboard.priority AS priority, jobboard.name AS name, jobboard.job_group AS
  job_group
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT AND (jobboard.priority, jobboard.id) > (walk_jobboard.priority, walk_jobboard.id) ORDER BY
  jobboard.priority, jobboard.id
 LIMIT 2000) AS near
WHERE near.name != ALL (walk_jobboard.shut) AND (near.job_group IS NULL OR (near.name || chr(10) || near.job_group)
  != ALL (walk_jobboard.shut)) ORDER BY near.priority, near.id
 LIMIT 1) AS job ON true JOIN LATERAL (SELECT array_agg(each.key) AS entering, array_agg(each.key) FILTER (WHERE
  each.free <= 0) AS closed, array_agg(each.key) FILTER (WHERE each.free <= 1) AS filled
FROM (SELECT CASE WHEN rule.per_group THEN job.name || chr(10) || job.job_group ELSE job.name END AS key,
  coalesce((SELECT CASE WHEN (rule.most = 0) THEN 1 WHEN ((rule.most - (length(scope.value) / 54)) -
  coalesce(cardinality(array_positions(walk_jobboard.entered, CASE WHEN rule.per_group THEN job.name || chr(10) ||
  job.job_group ELSE job.name END)), 0) > 1 OR length(scope.value) = 0) THEN (rule.most - (length(scope.value) /
  54)) - coalesce(cardinality(array_positions(walk_jobboard.entered, CASE WHEN rule.per_group THEN job.name ||
  chr(10) || job.job_group ELSE job.name END)), 0) WHEN (length(scope.value) > 1080 OR mod(length(scope.value), 54)
  != 0 OR (EXISTS (SELECT begin
FROM generate_series(1, length(scope.value), 54) AS begin
WHERE (SELECT claim.id
FROM jobboard AS claim
WHERE claim.uuid = substr(encode(scope.value, 'escape'), begin, 36) AND CAST(claim.token AS TEXT) =
  substr(encode(scope.value, 'escape'), begin + 37, 16) AND coalesce(claim.board, '') = %(p_board)s::VARCHAR AND
  claim.state = 'CLAIMED' AND claim.lock_until > CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)
 LIMIT 1) IS NULL))) THEN 2 ELSE (rule.most - (length(scope.value) / 54)) -
  coalesce(cardinality(array_positions(walk_jobboard.entered, CASE WHEN rule.per_group THEN job.name || chr(10) ||
  job.job_group ELSE job.name END)), 0) END AS anon_12
FROM jobboard_sides AS scope
WHERE scope.board = %(p_board)s::VARCHAR AND scope.kind = 'scope' AND scope.place = encode(sha256(convert_to(CASE
  WHEN rule.per_group THEN job.name || chr(10) || job.job_group ELSE job.name END, 'UTF8')), 'hex')
 LIMIT 1), greatest(rule.most, 1) - coalesce(cardinality(array_positions(walk_jobboard.entered, CASE WHEN
  rule.per_group THEN job.name || chr(10) || job.job_group ELSE job.name END)), 0)) AS free
FROM (VALUES (%(p_rule_name)s::VARCHAR, %(p_per_group)s, %(p_most)s::BIGINT)) AS rule (name, per_group, most)
WHERE job.name = rule.name AND (NOT rule.per_group OR job.job_group IS NOT NULL)
 LIMIT ALL OFFSET 0) AS each) AS room ON true
WHERE walk_jobboard.found < 25 AND walk_jobboard.steps < 75),
clock_jobboard AS MATERIALIZED
(SELECT CASE WHEN (txid_current() IS NOT NULL) THEN CAST(date_part('epoch', clock_timestamp()) * 1000000 AS BIGINT)
  END AS now),
seen_jobboard AS
(SELECT (SELECT jobboard.wake_at AS event
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.wake_at IS NOT NULL ORDER BY jobboard.wake_at
 LIMIT 1) AS event, coalesce((SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'gate' AND jobboard_sides.place =
  '6c621d1a05138a7888d37d9269a9da8e2e11e4aced2f6cfd24b05ab1b9e61bb0'), 0) AS gate),
picked_jobboard AS MATERIALIZED
(SELECT found.id AS id, found.uuid AS uuid, found.name AS name, found.job_group AS job_group, found.token AS token
FROM walk_jobboard JOIN LATERAL (SELECT jobboard.id AS id, jobboard.uuid AS uuid, jobboard.name AS name,
  jobboard.job_group AS job_group, greatest(jobboard.token + %(token_1)s::BIGINT, (SELECT clock_jobboard.now
FROM clock_jobboard)) AS token
FROM jobboard
WHERE jobboard.id = walk_jobboard.id AND coalesce(jobboard.board, '') = %(p_board)s::VARCHAR AND
  coalesce(jobboard.state, '') = 'UNCLAIMED' AND jobboard.version <= %(p_readable)s::BIGINT FOR UPDATE SKIP LOCKED)
  AS found ON true
WHERE walk_jobboard.open AND (SELECT seen_jobboard.gate = %(p_gate)s::BIGINT AND (seen_jobboard.event <=
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT)) IS NOT true AS anon_13
FROM seen_jobboard)
 LIMIT 1),
wanted_jobboard AS MATERIALIZED
(SELECT wanted.key AS key, wanted.place AS place, wanted.number AS number, wanted.most AS most, wanted.part AS part,
  coalesce((SELECT length(jobboard_sides.value) AS length_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = 'scope' AND jobboard_sides.place =
  wanted.place
 LIMIT 1), 0) AS size
FROM (SELECT CASE WHEN rule.per_group THEN picked_jobboard.name || chr(10) || picked_jobboard.job_group ELSE
  picked_jobboard.name END AS key, encode(sha256(convert_to(CASE WHEN rule.per_group THEN picked_jobboard.name ||
  chr(10) || picked_jobboard.job_group ELSE picked_jobboard.name END, 'UTF8')), 'hex') AS place, 1 AS number,
  rule.most AS most, picked_jobboard.uuid || ' ' || CAST(picked_jobboard.token AS TEXT) || ',' AS part
FROM (VALUES (%(p_rule_name)s::VARCHAR, %(p_per_group)s, %(p_most)s::BIGINT)) AS rule (name, per_group, most),
  picked_jobboard
WHERE picked_jobboard.name = rule.name AND (NOT rule.per_group OR picked_jobboard.job_group IS NOT NULL)) AS
  wanted),
entered_jobboard AS
(INSERT INTO jobboard_sides (board, kind, place, key, value, version) SELECT %(p_board)s::VARCHAR AS anon_5,
  'scope', wanted_jobboard.place AS place, wanted_jobboard.key AS key, convert_to(wanted_jobboard.part, 'UTF8') AS
  convert_to_1, CAST(random() * 4e18 AS BIGINT) AS anon_6
FROM wanted_jobboard
WHERE (SELECT coalesce(bool_and(length(wanted_jobboard.part) = wanted_jobboard.number * 54 AND
  mod(wanted_jobboard.size, 54) = 0 AND wanted_jobboard.size + wanted_jobboard.number * 54 <= wanted_jobboard.most *
  54), true) AS coalesce_1
FROM wanted_jobboard) ORDER BY wanted_jobboard.place ON CONFLICT (board, kind, place) DO UPDATE SET value =
  (jobboard_sides.value || excluded.value), version = (jobboard_sides.version + 1) WHERE
  mod(length(jobboard_sides.value), 54) = 0 AND length(jobboard_sides.value) + length(excluded.value) <= (SELECT
  wanted_jobboard.most
FROM wanted_jobboard
WHERE wanted_jobboard.place = excluded.place) * 54 RETURNING jobboard_sides.place),
taken_jobboard AS
(UPDATE jobboard SET state='CLAIMED', attempts=(jobboard.attempts + %(attempts_1)s::INTEGER),
  token=greatest(jobboard.token + %(token_2)s::BIGINT, clock_jobboard.now), who=%(p_who)s::VARCHAR,
  keeper=%(p_keeper)s::VARCHAR, lock_until=(clock_jobboard.now + %(p_ttl)s::BIGINT), modified_on=clock_jobboard.now,
  wake_at=(clock_jobboard.now + %(p_ttl)s::BIGINT) FROM clock_jobboard WHERE jobboard.id = ANY (array((SELECT
  picked_jobboard.id
FROM picked_jobboard
WHERE (SELECT coalesce(bool_and(length(wanted_jobboard.part) = wanted_jobboard.number * 54 AND
  mod(wanted_jobboard.size, 54) = 0 AND wanted_jobboard.size + wanted_jobboard.number * 54 <= wanted_jobboard.most *
  54), true) AS coalesce_1
FROM wanted_jobboard)))) RETURNING jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key,
  jobboard.version, jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token,
  jobboard.who, jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until),
answer_jobboard AS
(INSERT INTO jobboard_answers (handle, slot, call, answer, stamp) SELECT %(p_handle)s::VARCHAR AS anon_1,
  %(p_slot)s::INTEGER AS anon_2, %(p_call)s::BIGINT AS anon_3, CASE WHEN ((SELECT count(*) AS count_1
FROM entered_jobboard) = (SELECT count(*) AS count_2
FROM wanted_jobboard)) THEN told.anon_14 END AS anon_4, CAST(date_part('epoch', statement_timestamp()) * 1000000 AS
  BIGINT) AS anon_15
FROM (SELECT CAST(taken_jobboard.id AS TEXT) || ' ' || CAST(taken_jobboard.token AS TEXT) AS anon_14
FROM taken_jobboard) AS told ON CONFLICT (handle, slot) DO UPDATE SET call = CASE WHEN (jobboard_answers.call <
  excluded.call) THEN excluded.call END, answer = excluded.answer, stamp = CASE WHEN (jobboard_answers.stamp <
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) - %(param_9)s::BIGINT) THEN
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE jobboard_answers.stamp END)
 SELECT taken_jobboard.uuid, taken_jobboard.name, taken_jobboard.priority, taken_jobboard.id, taken_jobboard.key,
  taken_jobboard.version, taken_jobboard.posting, taken_jobboard.state, taken_jobboard.attempts,
  taken_jobboard.max_attempts, taken_jobboard.token, taken_jobboard.who, taken_jobboard.keeper,
  taken_jobboard.lock_until, taken_jobboard.created_on, taken_jobboard.modified_on, taken_jobboard.errors,
  taken_jobboard.retries, taken_jobboard.job_group, taken_jobboard.key_until, CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) AS anon_16, seen_jobboard.event, false AS anon_17, seen_jobboard.gate,
  CASE WHEN (taken_jobboard.uuid IS NOT NULL OR seen_jobboard.gate != %(p_gate)s::BIGINT) THEN NULL WHEN ((SELECT
  count(*) AS count_3
FROM picked_jobboard) > 0) THEN 'unsure' WHEN (EXISTS (SELECT walk_jobboard.id
FROM walk_jobboard
WHERE walk_jobboard.open)) THEN 'busy' WHEN ((SELECT jobboard.id
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'UNCLAIMED' AND jobboard.version <=
  %(p_readable)s::BIGINT ORDER BY jobboard.priority, jobboard.id
 LIMIT 1) IS NOT NULL) THEN 'more' END AS anon_18
FROM seen_jobboard LEFT OUTER JOIN taken_jobboard ON true;
