-- Takes jobs off a board, each only if nobody has claimed it, and leaves a note in its stead.
-- KEYS: the hash of postings, the hash of notes; then the owner's key and the last_modified key of each job.
-- ARGV: field, uuid and note of each job. Answers with a status for each.
local postings, notes = KEYS[1], KEYS[2]
local answers = {}
for job = 1, #ARGV / 3 do
  local owner, modified = KEYS[2 * job + 1], KEYS[2 * job + 2]
  local field, uuid, note = ARGV[3 * job - 2], ARGV[3 * job - 1], ARGV[3 * job]
  if redis.call('HEXISTS', postings, field) == 0 then
    answers[job] = 'absent'
  elseif redis.call('EXISTS', owner) == 1 then
    answers[job] = 'claimed'
  else
    redis.call('HSET', notes, uuid, note)
    redis.call('HDEL', postings, field)
    redis.call('DEL', modified)
    answers[job] = 'ok'
  end
end
return answers
