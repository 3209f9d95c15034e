-- Queue a waiter up, unless there are news since its last look.
-- Takes:
--   id: the waiter
--   names: of the jobs that it waits for, nil for any
--   readable: the newest version that it can read
--   takes: whether it will claim; a waiter that only looks hears the messages to all waiters alone
--   known: the number of the latest news at its last look
-- Returns whether the waiter is queued up and may sleep.

local id, names, readable, takes, known = unpack(args, 1, 5)
forget(id)
if latest_news() > known then return cmsgpack.pack(false) end
local members = {}
for index, name in ipairs(takes and (names or {''}) or {'\1'}) do
  members[index] = name .. '\0' .. digits(now) .. digits(readable) .. id
  call('ZADD', WAITERS, 0, members[index])
end
call('HSET', BELLS, id, cmsgpack.pack(members))
return cmsgpack.pack(true)
