-- Before a waiter goes to sleep: queue it up, unless there is something to do after all.
-- args: its id, ticket, whether it takes, readable version, names
-- Answers [whether to sleep, µs to the next event].

forget(args[1])
if claimable(args[5], args[4]) then return reply({false, false}) end
local tail = '\0' .. string.format('%016.0f', now) .. args[1]
local members = {}
if not args[3] then
  members[1] = 'p' .. tail
elseif args[5] then
  for index, name in ipairs(args[5]) do members[index] = 'n' .. name .. tail end
else
  members[1] = 'a' .. tail
end
for _, member in ipairs(members) do redis.call('ZADD', WAITERS, 0, member) end
redis.call('HSET', BELLS, args[1], cmsgpack.pack({now, args[2], members}))
return reply({true, next_event()})
