-- A waiter goes without having heard anything.
-- args: its id, ticket
-- Answers what it was given meanwhile, [uuid, record, posting], if that claim still stands; else false.

if waiters().forget(args[1]) then return reply(false) end
local given = side_of('answer\0bell:' .. args[1], answer_in)
local part = given and given[1] == args[2] and given[3][1]
local job = part and load(part[2])
return reply(job and job.record[STATE] == 'C' and job.record[TOKEN] == part[3] and shown(job) or false)
