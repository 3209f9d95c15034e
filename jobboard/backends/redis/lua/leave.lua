-- A waiter goes without having heard anything. If it was called meanwhile, another one gets the call.
-- args: its id, readable version
-- Answers whether it was still waiting.

if forget(args[1]) then return reply(true) end
local first = ready(nil, 1, args[2])[1]
if first then wake(first.record[NAME]) end
return reply(false)
