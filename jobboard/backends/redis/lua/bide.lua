-- Before a waiter goes to sleep: queue it up, unless there is something to do after all.
-- args: its id, ticket, readable version, names, the handle of its board; if it takes: who, lease in µs, keeper
-- Answers [whether to sleep, µs to the next event, now].

waiters().forget(args[1])
if claimable(args[4], args[3]) then return reply({false, false, now}) end
local tail = '\0' .. string.format('%016.0f', now) .. args[1]
local members = {}
if args[6] and args[4] then
  for index, name in ipairs(args[4]) do members[index] = 'n' .. name .. tail end
else
  members[1] = (args[6] and 'a' or 'p') .. tail
end
for _, member in ipairs(members) do call('ZADD', WAITERS, 0, member) end
local bell = {now, args[2], members, args[3], args[5], args[6] or false, args[7] or false, args[8] or false}
call('HSET', BELLS, args[1], cmsgpack.pack(bell))
return reply({true, next_event(), now})
