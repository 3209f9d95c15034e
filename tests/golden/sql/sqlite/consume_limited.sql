BEGIN IMMEDIATE;
DELETE FROM jobboard WHERE jobboard.uuid IN (SELECT anon_1.value
FROM json_each(?) AS anon_1) AND jobboard.board = ? AND jobboard.token = ? AND jobboard.who IS NOT NULL AND
  (jobboard.state = 'UNCLAIMED' OR jobboard.state = 'CLAIMED' AND jobboard.lock_until > CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER)) AND (jobboard.key_until IS NULL OR jobboard.key_until <=
  CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000 AS INTEGER));
-- with many rows
UPDATE jobboard_sides SET value=CAST(replace(jobboard_sides.value, ?, ?) AS BLOB), version=(jobboard_sides.version +
  ?) WHERE jobboard_sides.board = ? AND jobboard_sides.kind = 'scope' AND jobboard_sides.place = ? AND
  length(jobboard_sides.value) % 54 = 0;
UPDATE jobboard_answers SET call=?, answer=?, stamp=CASE WHEN (jobboard_answers.stamp < CAST(ROUND((julianday('now')
  - 2440587.5) * 86400000) * 1000 AS INTEGER) - ?) THEN CAST(ROUND((julianday('now') - 2440587.5) * 86400000) * 1000
  AS INTEGER) ELSE jobboard_answers.stamp END WHERE jobboard_answers.handle = ? AND jobboard_answers.slot = ? AND
  jobboard_answers.call < ?;
COMMIT;
