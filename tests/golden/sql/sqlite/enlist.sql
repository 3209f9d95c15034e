BEGIN IMMEDIATE;
UPDATE jobboard_entities SET handle=?, metadata=?, until=(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) *
  1000 AS INTEGER) + ?) WHERE jobboard_entities.board = ? AND jobboard_entities.kind = ? AND jobboard_entities.name
  = ?;
INSERT INTO jobboard_entities (board, kind, name, handle, metadata, until) VALUES (?, ?, ?, ?, ?,
  (CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER) + ?));
COMMIT;
