UPDATE jobboard_entities SET handle=%(p_handle)s, metadata=%(p_metadata)s, until=(TIMESTAMPDIFF(MICROSECOND,
  '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) + %(p_ttl)s) WHERE jobboard_entities.board = %(p_board)s AND
  jobboard_entities.kind = %(p_kind)s AND jobboard_entities.name = %(p_name)s;
INSERT INTO jobboard_entities (board, kind, name, handle, metadata, until) VALUES (%(p_board)s, %(p_kind)s,
  %(p_name)s, %(p_handle)s, %(p_metadata)s, (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)) +
  %(p_ttl)s));
COMMIT;
