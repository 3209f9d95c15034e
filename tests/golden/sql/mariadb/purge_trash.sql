SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS anon_1;
ROLLBACK;
SELECT anon_1.uuid, anon_1.name, anon_1.priority, anon_1.id, anon_1.`key`, anon_1.version, anon_1.posting,
  anon_1.state, anon_1.attempts, anon_1.max_attempts, anon_1.token, anon_1.who, anon_1.keeper, anon_1.lock_until,
  anon_1.created_on, anon_1.modified_on, anon_1.errors, anon_1.retries, anon_1.job_group, anon_1.key_until,
  anon_1.anon_2, anon_1.trashed_on
FROM (SELECT anon_3.uuid AS uuid, anon_3.name AS name, anon_3.priority AS priority, anon_3.id AS id, anon_3.`key` AS
  `key`, anon_3.version AS version, anon_3.posting AS posting, anon_3.state AS state, anon_3.attempts AS attempts,
  anon_3.max_attempts AS max_attempts, anon_3.token AS token, anon_3.who AS who, anon_3.keeper AS keeper,
  anon_3.lock_until AS lock_until, anon_3.created_on AS created_on, anon_3.modified_on AS modified_on, anon_3.errors
  AS errors, anon_3.retries AS retries, anon_3.job_group AS job_group, anon_3.key_until AS key_until, anon_3.anon_2
  AS anon_2, anon_3.trashed_on AS trashed_on
FROM (SELECT jobboard.uuid AS uuid, jobboard.name AS name, jobboard.priority AS priority, jobboard.id AS id,
  jobboard.`key` AS `key`, jobboard.version AS version, jobboard.posting AS posting, jobboard.state AS state,
  jobboard.attempts AS attempts, jobboard.max_attempts AS max_attempts, jobboard.token AS token, jobboard.who AS
  who, jobboard.keeper AS keeper, jobboard.lock_until AS lock_until, jobboard.created_on AS created_on,
  jobboard.modified_on AS modified_on, jobboard.errors AS errors, jobboard.retries AS retries, jobboard.job_group AS
  job_group, jobboard.key_until AS key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS
  anon_2, jobboard.gone_on AS trashed_on
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'TRASHED' AND jobboard.gone_on > %(gone_on_1)s ORDER BY
  jobboard.gone_on DESC, jobboard.id DESC
 LIMIT %(p_limit)s) AS anon_3 UNION ALL SELECT anon_4.uuid AS uuid, anon_4.name AS name, anon_4.priority AS
  priority, anon_4.id AS id, anon_4.`key` AS `key`, anon_4.version AS version, anon_4.posting AS posting,
  anon_4.state AS state, anon_4.attempts AS attempts, anon_4.max_attempts AS max_attempts, anon_4.token AS token,
  anon_4.who AS who, anon_4.keeper AS keeper, anon_4.lock_until AS lock_until, anon_4.created_on AS created_on,
  anon_4.modified_on AS modified_on, anon_4.errors AS errors, anon_4.retries AS retries, anon_4.job_group AS
  job_group, anon_4.key_until AS key_until, anon_4.anon_2 AS anon_2, anon_4.trashed_on AS trashed_on
FROM (SELECT jobboard.uuid AS uuid, jobboard.name AS name, jobboard.priority AS priority, jobboard.id AS id,
  jobboard.`key` AS `key`, jobboard.version AS version, jobboard.posting AS posting, jobboard.state AS state,
  jobboard.attempts AS attempts, jobboard.max_attempts AS max_attempts, jobboard.token AS token, jobboard.who AS
  who, jobboard.keeper AS keeper, jobboard.lock_until AS lock_until, jobboard.created_on AS created_on,
  jobboard.modified_on AS modified_on, jobboard.errors AS errors, jobboard.retries AS retries, jobboard.job_group AS
  job_group, jobboard.key_until AS key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS
  anon_2, jobboard.lock_until AS trashed_on
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AND jobboard.state = 'CLAIMED' AND jobboard.lock_until <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01
  00:00:00', UTC_TIMESTAMP(6)) AND NOT (jobboard.max_attempts IS NULL OR jobboard.attempts < jobboard.max_attempts)
  ORDER BY jobboard.lock_until DESC, jobboard.id DESC
 LIMIT %(p_limit)s) AS anon_4) AS anon_1 ORDER BY anon_1.trashed_on DESC, anon_1.id DESC
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.`key`, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AS anon_1
FROM jobboard FORCE INDEX (jobboard_uuid)
WHERE jobboard.uuid IN (%(p_uuids_1)s, …) AND jobboard.board = %(p_board)s FOR UPDATE;
UPDATE jobboard FORCE INDEX (PRIMARY) SET name=%(name)s, `key`=NULL, posting=%(posting)s, state='PURGED', who=NULL,
  keeper=NULL, lock_until=NULL, modified_on=TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)),
  errors=NULL, job_group=NULL, key_until=NULL, live_key=NULL, wake_at=NULL, gone_on=(-TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6))) WHERE jobboard.id = %(p_id)s;
UPDATE jobboard_answers SET `call`=%(p_call)s, answer=%(p_answer)s, stamp=CASE WHEN (jobboard_answers.stamp <
  TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) - %(param_1)s) THEN TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle =
  %(p_handle)s AND jobboard_answers.slot = %(p_slot)s AND jobboard_answers.`call` < %(p_call)s;
COMMIT;
SELECT anon_1.uuid, anon_1.name, anon_1.priority, anon_1.id, anon_1.`key`, anon_1.version, anon_1.posting,
  anon_1.state, anon_1.attempts, anon_1.max_attempts, anon_1.token, anon_1.who, anon_1.keeper, anon_1.lock_until,
  anon_1.created_on, anon_1.modified_on, anon_1.errors, anon_1.retries, anon_1.job_group, anon_1.key_until,
  anon_1.anon_2, anon_1.trashed_on
FROM (SELECT anon_3.uuid AS uuid, anon_3.name AS name, anon_3.priority AS priority, anon_3.id AS id, anon_3.`key` AS
  `key`, anon_3.version AS version, anon_3.posting AS posting, anon_3.state AS state, anon_3.attempts AS attempts,
  anon_3.max_attempts AS max_attempts, anon_3.token AS token, anon_3.who AS who, anon_3.keeper AS keeper,
  anon_3.lock_until AS lock_until, anon_3.created_on AS created_on, anon_3.modified_on AS modified_on, anon_3.errors
  AS errors, anon_3.retries AS retries, anon_3.job_group AS job_group, anon_3.key_until AS key_until, anon_3.anon_2
  AS anon_2, anon_3.trashed_on AS trashed_on
FROM (SELECT jobboard.uuid AS uuid, jobboard.name AS name, jobboard.priority AS priority, jobboard.id AS id,
  jobboard.`key` AS `key`, jobboard.version AS version, jobboard.posting AS posting, jobboard.state AS state,
  jobboard.attempts AS attempts, jobboard.max_attempts AS max_attempts, jobboard.token AS token, jobboard.who AS
  who, jobboard.keeper AS keeper, jobboard.lock_until AS lock_until, jobboard.created_on AS created_on,
  jobboard.modified_on AS modified_on, jobboard.errors AS errors, jobboard.retries AS retries, jobboard.job_group AS
  job_group, jobboard.key_until AS key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS
  anon_2, jobboard.gone_on AS trashed_on
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.state = 'TRASHED' AND jobboard.gone_on > %(gone_on_1)s AND
  jobboard.gone_on <= %(p_when)s AND (jobboard.gone_on < %(p_when)s OR jobboard.gone_on = %(p_when)s AND jobboard.id
  < %(p_id)s) ORDER BY jobboard.gone_on DESC, jobboard.id DESC
 LIMIT %(p_limit)s) AS anon_3 UNION ALL SELECT anon_4.uuid AS uuid, anon_4.name AS name, anon_4.priority AS
  priority, anon_4.id AS id, anon_4.`key` AS `key`, anon_4.version AS version, anon_4.posting AS posting,
  anon_4.state AS state, anon_4.attempts AS attempts, anon_4.max_attempts AS max_attempts, anon_4.token AS token,
  anon_4.who AS who, anon_4.keeper AS keeper, anon_4.lock_until AS lock_until, anon_4.created_on AS created_on,
  anon_4.modified_on AS modified_on, anon_4.errors AS errors, anon_4.retries AS retries, anon_4.job_group AS
  job_group, anon_4.key_until AS key_until, anon_4.anon_2 AS anon_2, anon_4.trashed_on AS trashed_on
FROM (SELECT jobboard.uuid AS uuid, jobboard.name AS name, jobboard.priority AS priority, jobboard.id AS id,
  jobboard.`key` AS `key`, jobboard.version AS version, jobboard.posting AS posting, jobboard.state AS state,
  jobboard.attempts AS attempts, jobboard.max_attempts AS max_attempts, jobboard.token AS token, jobboard.who AS
  who, jobboard.keeper AS keeper, jobboard.lock_until AS lock_until, jobboard.created_on AS created_on,
  jobboard.modified_on AS modified_on, jobboard.errors AS errors, jobboard.retries AS retries, jobboard.job_group AS
  job_group, jobboard.key_until AS key_until, TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) AS
  anon_2, jobboard.lock_until AS trashed_on
FROM jobboard
WHERE jobboard.board = %(p_board)s AND jobboard.wake_at <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00',
  UTC_TIMESTAMP(6)) AND jobboard.state = 'CLAIMED' AND jobboard.lock_until <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01
  00:00:00', UTC_TIMESTAMP(6)) AND NOT (jobboard.max_attempts IS NULL OR jobboard.attempts < jobboard.max_attempts)
  AND jobboard.lock_until <= %(p_when)s AND (jobboard.lock_until < %(p_when)s OR jobboard.lock_until = %(p_when)s
  AND jobboard.id < %(p_id)s) ORDER BY jobboard.lock_until DESC, jobboard.id DESC
 LIMIT %(p_limit)s) AS anon_4) AS anon_1 ORDER BY anon_1.trashed_on DESC, anon_1.id DESC
 LIMIT %(p_limit)s;
ROLLBACK;
