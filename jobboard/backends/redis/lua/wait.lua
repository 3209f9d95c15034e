-- Before a waiter goes to sleep: queue it up, unless there is news since it has looked.
-- args: its id, names or nil, readable version, whether it will claim (one that only looks is called with all), news that
--   it knows of
-- Returns whether to sleep.

local id, names, readable, takes, known = unpack(args, 1, 5)
forget(id)
if (tonumber(call('HGET', META, 'news') or 0) or 0) > known then return cmsgpack.pack(false) end
local members = {}
for index, name in ipairs(takes and (names or {''}) or {'\1'}) do
  members[index] = name .. '\0' .. digits(now) .. digits(readable) .. id
  call('ZADD', WAITERS, 0, members[index])
end
call('HSET', BELLS, id, cmsgpack.pack(members))
return cmsgpack.pack(true)
