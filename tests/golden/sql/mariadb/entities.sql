SELECT jobboard_entities.kind, jobboard_entities.name, jobboard_entities.metadata
FROM jobboard_entities
WHERE jobboard_entities.board = %(p_board)s AND jobboard_entities.until > TIMESTAMPDIFF(MICROSECOND, '1970-01-01
  00:00:00', UTC_TIMESTAMP(6));
ROLLBACK;
