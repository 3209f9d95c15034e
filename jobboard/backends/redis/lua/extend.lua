-- Set the lease of a claim. Done again when it is repeated, which does no harm.
-- args: slot, call, try, uuid, who, token, lease in µs, keeper
-- Answers the status.

answered('string')
local job = load(args[4])
local status = check(job, args[5], args[6])
if status == 'ok' then
  local record = job.record
  record[STATE], record[KEEPER], record[LOCK_UNTIL] = 'C', args[8] or false, now + args[7]
  store(job)
  tell('EXTENDED', job)
end
if status == 'ok' or repeated() then answer(status) end
return reply(status)
