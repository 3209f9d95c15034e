SELECT jobboard.board
FROM jobboard
WHERE jobboard.board = %(p_board)s::VARCHAR ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s::INTEGER;
SELECT jobboard.board
FROM jobboard
WHERE jobboard.board > %(p_after)s::VARCHAR ORDER BY jobboard.board, jobboard.priority, jobboard.id
 LIMIT 1;
SELECT jobboard.board
FROM jobboard
WHERE jobboard.board > %(p_after)s::VARCHAR ORDER BY jobboard.board, jobboard.priority, jobboard.id
 LIMIT 1;
