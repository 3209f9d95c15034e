SELECT jobboard.board
FROM jobboard FORCE INDEX (jobboard_serving)
WHERE jobboard.board = %(p_board)s ORDER BY jobboard.priority, jobboard.id
 LIMIT %(p_limit)s;
ROLLBACK;
SELECT jobboard.board
FROM jobboard FORCE INDEX (jobboard_serving)
WHERE jobboard.board > %(p_after)s ORDER BY jobboard.board, jobboard.priority, jobboard.id
 LIMIT 1;
ROLLBACK;
SELECT jobboard.board
FROM jobboard FORCE INDEX (jobboard_serving)
WHERE jobboard.board > %(p_after)s ORDER BY jobboard.board, jobboard.priority, jobboard.id
 LIMIT 1;
ROLLBACK;
