-- Drop what nobody will ask for again: answers of an hour ago, waiters and entities that died, what was purged a day ago.
-- A few of the answers at a time, going on where the last call stopped.
-- args: none
-- Answers true.

local HOUR = 3600e6
local page = redis.call('HSCAN', ANSWERS, redis.call('HGET', META, 'cleaned') or '0', 'COUNT', 200)
for index = 1, #page[2], 2 do
  if cmsgpack.unpack(page[2][index + 1])[2] < now - HOUR then redis.call('HDEL', ANSWERS, page[2][index]) end
end
redis.call('HSET', META, 'cleaned', page[1])

local bells = redis.call('HGETALL', BELLS)
for index = 1, #bells, 2 do
  if cmsgpack.unpack(bells[index + 1])[1] < now - HOUR then forget(bells[index]) end
end

local entities = redis.call('HGETALL', ENTITIES)
for index = 1, #entities, 2 do
  if cmsgpack.unpack(entities[index + 1])[3] < now then redis.call('HDEL', ENTITIES, entities[index]) end
end

redis.call('ZREMRANGEBYSCORE', PURGED, '-inf', string.format('%.0f', now - DAY))
return reply(true)
