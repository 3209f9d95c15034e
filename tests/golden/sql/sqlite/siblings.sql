SELECT jobboard.board
FROM jobboard
WHERE jobboard.board = ? ORDER BY jobboard.priority, jobboard.id
 LIMIT ? OFFSET ?;
SELECT jobboard.board
FROM jobboard
WHERE jobboard.board > ? ORDER BY jobboard.board, jobboard.priority, jobboard.id
 LIMIT 1 OFFSET ?;
SELECT jobboard.board
FROM jobboard
WHERE jobboard.board > ? ORDER BY jobboard.board, jobboard.priority, jobboard.id
 LIMIT 1 OFFSET ?;
