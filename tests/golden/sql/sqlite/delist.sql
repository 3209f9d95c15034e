BEGIN IMMEDIATE;
DELETE FROM jobboard_entities WHERE jobboard_entities.board = ? AND jobboard_entities.handle = ?;
COMMIT;
