SELECT jobboard_outcomes.uuid, jobboard_outcomes.name, jobboard_outcomes.priority, jobboard_outcomes.id,
  jobboard_outcomes.key, jobboard_outcomes.version, jobboard_outcomes.posting, jobboard_outcomes.attempts,
  jobboard_outcomes.max_attempts, jobboard_outcomes.token, jobboard_outcomes.who, jobboard_outcomes.created_on,
  jobboard_outcomes.begun, jobboard_outcomes.modified_on, jobboard_outcomes.until, jobboard_outcomes.errors,
  jobboard_outcomes.retries, jobboard_outcomes.job_group, jobboard_outcomes.result, jobboard_outcomes.refused
FROM jobboard_outcomes
WHERE jobboard_outcomes.until + 0 > CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AND
  jobboard_outcomes.uuid IN (%(p_uuids_1)s::VARCHAR, …) AND coalesce(jobboard_outcomes.board, '') =
  %(p_board)s::VARCHAR;
