BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.uuid IN (%(p_uuids_1)s::VARCHAR, …) AND coalesce(jobboard.board, '') = %(p_board)s::VARCHAR FOR
  UPDATE;
UPDATE jobboard SET name=%(name)s::VARCHAR, key=NULL, posting=%(posting)s::VARCHAR, state='PURGED', who=NULL,
  keeper=NULL, lock_until=NULL, modified_on=CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT),
  errors=NULL, job_group=NULL, key_until=NULL, live_key=NULL, wake_at=NULL, gone_on=(-CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT)) WHERE jobboard.id = %(p_id)s::BIGINT;
UPDATE jobboard_answers SET call=%(p_call)s::BIGINT, answer=%(p_answer)s::VARCHAR, stamp=CASE WHEN
  (jobboard_answers.stamp < CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT) THEN CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE
  jobboard_answers.stamp END WHERE jobboard_answers.handle = %(p_handle)s::VARCHAR AND jobboard_answers.slot =
  %(p_slot)s::BIGINT AND jobboard_answers.call < %(p_call)s::BIGINT;
COMMIT;
