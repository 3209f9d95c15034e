SELECT jobboard.uuid, jobboard.name, jobboard.priority, jobboard.id, jobboard.key, jobboard.version,
  jobboard.posting, jobboard.state, jobboard.attempts, jobboard.max_attempts, jobboard.token, jobboard.who,
  jobboard.keeper, jobboard.lock_until, jobboard.created_on, jobboard.modified_on, jobboard.errors,
  jobboard.retries, jobboard.job_group, jobboard.key_until, CAST(date_part('epoch', statement_timestamp()) * 1000000
  AS BIGINT) AS anon_1
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'SCHEDULED' OR
  jobboard.state = 'CLAIMED') AND (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'UNCLAIMED' OR
  jobboard.lock_until <= CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AND (jobboard.state =
  'SCHEDULED' OR jobboard.state = 'CLAIMED' AND (jobboard.max_attempts IS NULL OR jobboard.attempts <
  jobboard.max_attempts))) ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s::INTEGER;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …);
