SELECT jobboard_entities.kind, jobboard_entities.name, jobboard_entities.metadata
FROM jobboard_entities
WHERE jobboard_entities.board = ? AND jobboard_entities.until > CAST(ROUND((julianday('now') - 2440587.5) *
  86400000) * 1000 AS INTEGER);
