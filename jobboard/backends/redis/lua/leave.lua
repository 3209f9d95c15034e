-- A waiter goes without having heard anything.
-- args: its id, ticket
-- Answers what it was given meanwhile, [uuid, record, posting], if that claim still stands; else false.

if waiters().forget(args[1]) then return reply(false) end
local given = damage().entry('answers', ANSWERS, 'bell:' .. args[1], answer_in)
if not given or given[1] ~= args[2] or type(given[3]) ~= 'table' then return reply(false) end
local job = load(given[3][1])
local stands = job and job.record[STATE] == 'C' and job.record[TOKEN] == given[3][2]
return reply(stands and shown(job))
