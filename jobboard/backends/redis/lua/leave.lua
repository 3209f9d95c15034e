-- A waiter goes without having heard anything.
-- args: its id
-- Answers whether it was still waiting, and had not been called meanwhile.

return reply(forget(args[1]) ~= nil)
