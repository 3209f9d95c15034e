-- Claim the first jobs in order, after bringing back what has lapsed or come due; or one job, if it is unclaimed now.
-- args: slot, call, try, who, how many, lease in µs, keeper, readable version, names, uuid of the one
-- Answers [status, replayed, µs that they stand, µs to the next event, [trashed], [taken], [lapsed]]; a job is [uuid,
-- record, posting]: lapsed are those whose lapses it has written down, as they are then. 'again': nothing could be taken as far as it has swept, or looked; call once more with the same nonce.

local taken, trashed, lapsed, status, stands, parts = {}, {}, {}, 'ok', args[6], {}
local one = args[10]

local function claim(job)
  claimed(job, args[4], args[6], args[7])
  store(job)
  if limited() then limits().enter(job) end
  tell('CLAIMED', job)
  taken[#taken + 1] = job
  parts[#parts + 1] = done('ok', job.id, job.record[TOKEN])
end

local stored = answered()
if stored then
  for _, each in ipairs(stored) do
    local job = each[1] == 'ok' and load(each[2])
    if job and job.record[STATE] == 'C' and job.record[TOKEN] == each[3] then
      stands = math.min(stands, job.record[LOCK_UNTIL] - now)
      taken[#taken + 1] = job
    elseif one then
      status = each[1] == 'ok' and 'lost' or each[1]
    end
  end
elseif one then
  rules(true)
  local job = load(one)
  status = not job and 'absent' or job.record[STATE] == 'U' and 'ok' or STATUS[job.record[STATE]]
  if status == 'ok' and is_paused(job.record) then status = 'paused' end
  if status == 'ok' and limited() and not limits().has_room(job.record) then status = 'limited' end
  if status == 'ok' and job.lapsed then lapsed[1] = {one, cmsgpack.pack(job.record), ''} end
  if status == 'ok' then claim(job) else parts[1] = done(status, one, 0) end
  if status == 'ok' or args[3] > 1 then answer(parts) end
else
  rules(true)
  local met = overdue(OVERDUE)
  for _, job in ipairs(met) do
    store(job)
    if job.lapsed then lapsed[#lapsed + 1] = {job.id, job.blob, ''} end
    if job.state == 'T' then trashed[#trashed + 1] = job end
  end
  local unsure = false
  if limited() then
    local names, shut, job = args[9] and set_of(args[9]), {}, nil
    repeat
      job, unsure = lanes().first(names, args[8], shut)
      if job then claim(job) end
    until not job or #taken == args[5]
  else
    for _, job in ipairs(ready(args[9], args[5], args[8])) do claim(job) end
  end
  if not taken[1] and (unsure or #met == OVERDUE or strays >= MOST) then
    status = 'again'
  elseif taken[1] or args[3] > 1 then
    answer(parts)
  end
end
for _, job in ipairs(aside or {}) do trashed[#trashed + 1] = job end
local event = not (one or taken[1]) and next_event()
return reply({status, stored and true or false, stands, event, all_shown(trashed), all_shown(taken), lapsed})
