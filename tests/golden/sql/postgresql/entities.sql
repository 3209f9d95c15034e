SELECT jobboard_entities.kind, jobboard_entities.name, jobboard_entities.metadata
FROM jobboard_entities
WHERE jobboard_entities.board = %(p_board)s::VARCHAR AND jobboard_entities.until > CAST(EXTRACT(EPOCH FROM
  statement_timestamp()) * 1000000 AS BIGINT);
