BEGIN;
UPDATE jobboard_entities SET handle=%(p_handle)s::VARCHAR, metadata=%(p_metadata)s::VARCHAR,
  until=(CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT) + %(p_ttl)s::BIGINT) WHERE
  jobboard_entities.board = %(p_board)s::VARCHAR AND jobboard_entities.kind = %(p_kind)s::VARCHAR AND
  jobboard_entities.name = %(p_name)s::VARCHAR;
INSERT INTO jobboard_entities (board, kind, name, handle, metadata, until) VALUES (%(p_board)s::VARCHAR,
  %(p_kind)s::VARCHAR, %(p_name)s::VARCHAR, %(p_handle)s::VARCHAR, %(p_metadata)s::VARCHAR, (CAST(EXTRACT(EPOCH FROM
  statement_timestamp()) * 1000000 AS BIGINT) + %(p_ttl)s::BIGINT));
COMMIT;
