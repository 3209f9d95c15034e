BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS anon_1
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …) ORDER BY jobboard_sides.place FOR UPDATE;
SELECT pg_notify(%(p_channel)s::VARCHAR, %(p_board)s::VARCHAR) AS pg_notify_1;
SELECT CAST(pg_advisory_xact_lock(hashtextextended('jobboard ' || %(p_board)s::VARCHAR, 0)) AS VARCHAR) AS
  pg_advisory_xact_lock_1;
DELETE FROM jobboard_sides WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind =
  %(p_kind)s::VARCHAR AND jobboard_sides.place = %(p_place)s::VARCHAR AND jobboard_sides.version = %(p_was)s::BIGINT;
UPDATE jobboard_answers SET call=%(p_call)s::BIGINT, answer=%(p_answer)s::VARCHAR, stamp=CASE WHEN
  (jobboard_answers.stamp < CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) -
  %(param_1)s::BIGINT) THEN CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) ELSE
  jobboard_answers.stamp END WHERE jobboard_answers.handle = %(p_handle)s::VARCHAR AND jobboard_answers.slot =
  %(p_slot)s::BIGINT AND jobboard_answers.call < %(p_call)s::BIGINT;
COMMIT;
