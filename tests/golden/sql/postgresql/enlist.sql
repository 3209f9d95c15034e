SELECT jobboard_sides.key, jobboard_sides.value, jobboard_sides.until, jobboard_sides.version, clock.now
FROM (SELECT CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) AS now) AS clock LEFT OUTER JOIN
  jobboard_sides ON jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place IN (%(p_places_1)s::VARCHAR, …);
BEGIN; SELECT CASE WHEN NOT pg_is_in_recovery() THEN txid_current() END;
INSERT INTO jobboard_sides (board, kind, place, key, value, until, version) VALUES (%(p_board)s::VARCHAR,
  %(p_kind)s::VARCHAR, %(p_place)s::VARCHAR, %(p_key)s::VARCHAR, %(p_value)s, coalesce(%(p_until)s::BIGINT,
  CAST(date_part('epoch', statement_timestamp()) * 1000000 AS BIGINT) + %(p_ttl)s::BIGINT), %(p_version)s::BIGINT)
  ON CONFLICT DO NOTHING;
SELECT jobboard_sides.version
FROM jobboard_sides
WHERE jobboard_sides.board = %(p_board)s::VARCHAR AND jobboard_sides.kind = %(p_kind)s::VARCHAR AND
  jobboard_sides.place = %(p_place)s::VARCHAR;
COMMIT;
