DELETE FROM jobboard_entities WHERE jobboard_entities.board = %(p_board)s AND jobboard_entities.handle =
  %(p_handle)s;
COMMIT;
