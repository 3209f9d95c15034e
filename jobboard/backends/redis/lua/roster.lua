-- The entities that are alive.
-- args: none
-- Answers [[kind .. '\0' .. name, metadata], …].

local found = {}
local entries = redis.call('HGETALL', ENTITIES)
for index = 1, #entries, 2 do
  local entity = damage().entity_of(entries[index], entries[index + 1])
  if entity and entity[3] > now then found[#found + 1] = {entries[index], entity[2]} end
end
return reply(found)
