-- Drop what nobody will ask for again: answers of an hour ago, waiters and entities that died, what was purged a day ago.
-- A few of the answers at a time, going on where the last call stopped.
-- args: none
-- Answers true.

local HOUR = 3600e6
local page = redis.pcall('HSCAN', ANSWERS, redis.call('HGET', META, 'cleaned') or '0', 'COUNT', 200)
if page.err then page = redis.call('HSCAN', ANSWERS, '0', 'COUNT', 200) end
for index = 1, #page[2], 2 do
  local stored = damage().entry('answers', ANSWERS, page[2][index], answer_in, page[2][index + 1])
  if stored and stored[2] < now - HOUR then redis.call('HDEL', ANSWERS, page[2][index]) end
end
redis.call('HSET', META, 'cleaned', page[1])

local bells = redis.call('HGETALL', BELLS)
for index = 1, #bells, 2 do
  local bell = waiters().bell_of(bells[index], bells[index + 1])
  if bell and bell[waiters().BELL.CAME] < now - HOUR then waiters().forget(bells[index], bell) end
end

local entities = redis.call('HGETALL', ENTITIES)
for index = 1, #entities, 2 do
  local entity = damage().entity_of(entities[index], entities[index + 1])
  if entity and entity[3] < now then redis.call('HDEL', ENTITIES, entities[index]) end
end

redis.call('ZREMRANGEBYSCORE', PURGED, '-inf', string.format('%.0f', now - DAY))
return reply(true)
