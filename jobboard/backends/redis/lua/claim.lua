-- Claim one job, if it is unclaimed now.
-- args: slot, call, try, uuid, who, lease in µs, keeper
-- Answers [status], or ['ok', µs that it stands, uuid, record, posting].

local stored = answered('table')
local job = load(args[4])
local status
if stored then
  status = stored[1]
  if status == 'ok' and not (job and job.record[STATE] == 'C' and job.record[TOKEN] == stored[2]) then
    status = 'lost'
  end
else
  status = not job and 'absent' or job.record[STATE] == 'U' and 'ok' or STATUS[job.record[STATE]]
  if status == 'ok' then claim(job, args[5], args[6], args[7]) end
  if status == 'ok' or repeated() then answer({status, job and job.record[TOKEN]}) end
end
if status ~= 'ok' then return reply({status}) end
return reply({status, job.record[LOCK_UNTIL] - now, unpack(shown(job))})
