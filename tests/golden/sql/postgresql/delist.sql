BEGIN;
DELETE FROM jobboard_entities WHERE jobboard_entities.board = %(p_board)s::VARCHAR AND jobboard_entities.handle =
  %(p_handle)s::VARCHAR;
COMMIT;
