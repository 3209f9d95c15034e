-- Write something, whatever there is to change. WAIT waits for what its own connection has written, and so for all that
-- was written before that, by whomever.
-- args: uuid and token of a claim; or none
-- Answers whether that claim stands.

local job = args[1] and load(args[1])
next_sequence()
return reply(job and job.record[STATE] == 'C' and job.record[TOKEN] == args[2] or false)
