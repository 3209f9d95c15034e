SELECT jobboard_answers.handle
FROM jobboard_answers
WHERE jobboard_answers.stamp < (CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT) - %(param_2)s::BIGINT ORDER BY jobboard_answers.stamp
 LIMIT 1000;
SELECT jobboard.uuid
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR AND jobboard.state = 'PURGED' AND jobboard.gone_on < 0 AND
  jobboard.gone_on > %(param_3)s::BIGINT - CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ORDER
  BY jobboard.gone_on DESC
 LIMIT 1000;
SELECT jobboard_sides.kind, jobboard_sides.place
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.until < CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) ORDER BY jobboard_sides.until
 LIMIT 1000;
SELECT jobboard_outcomes.uuid
FROM jobboard_outcomes
WHERE jobboard_outcomes.board = %(p_board)s::VARCHAR AND jobboard_outcomes.until <= CAST(date_part('epoch',
  statement_timestamp()) * 1000000 AS BIGINT) ORDER BY jobboard_outcomes.until
 LIMIT 500;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place > %(p_after)s::VARCHAR ORDER BY jobboard_sides.place
 LIMIT %(p_limit)s::INTEGER;
