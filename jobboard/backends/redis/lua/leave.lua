-- A waiter goes without having heard anything.
-- args: its id, ticket
-- Answers what it was given meanwhile, [uuid, record, posting], if that claim still stands; else false.

if forget(args[1]) then return reply(false) end
local given = redis.call('HGET', ANSWERS, 'bell:' .. args[1])
given = given and cmsgpack.unpack(given)
if not given or given[1] ~= args[2] then return reply(false) end
local job = load(given[3][1])
local stands = job and job.record[STATE] == 'C' and job.record[TOKEN] == given[3][2]
return reply(stands and shown(job))
