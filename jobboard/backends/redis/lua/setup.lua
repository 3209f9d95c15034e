-- Mark a board with the layout of its containers.
-- args: whether to create it, layout, the oldest layout whose clients can read it
-- Answers [layout, oldest layout], or [] where there is no board.

local stored = call('HMGET', META, 'layout', 'min_reader')
local damaged = stored[1] and not (tonumber(stored[1]) and tonumber(stored[2] or ''))
if damaged then damage().note('meta', 'layout', 'it names no layout', stored[1] .. ' ' .. (stored[2] or '')) end
if damaged or not stored[1] and args[1] then
  call('HSET', META, 'layout', args[2], 'min_reader', args[3])
  stored = {args[2], args[3]}
end
if not stored[1] then return reply({}) end
return reply({tonumber(stored[1]), tonumber(stored[2])})
