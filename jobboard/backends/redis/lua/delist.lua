-- Remove every entity of a handle.
-- args: handle
-- Answers true.

local entries = redis.call('HGETALL', ENTITIES)
for index = 1, #entries, 2 do
  local entity = damage().entity_of(entries[index], entries[index + 1])
  if entity and entity[1] == args[1] then redis.call('HDEL', ENTITIES, entries[index]) end
end
return reply(true)
