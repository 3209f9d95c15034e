-- End claims, each by its own verb; and cancel or purge what nobody holds, if it is still as it was seen.
-- args: slot, call, try, acts [[uuid, who, token, verb, delay in µs, error, refund, due, retry], …]
-- Answers their statuses.

local statuses = answered('table')
if statuses then return reply(statuses) end

local function finish(job, verb, delay, reason, refund, due, retry)
  local record = job.record
  if verb == 'consume' then
    tell('CONSUMED', job)
    drop(job)
    return
  end
  if refund or retry then record[ATTEMPTS] = math.max(0, record[ATTEMPTS] - 1) end
  if retry then record[RETRIES] = record[RETRIES] + 1 end
  if reason then record[ERROR] = reason end
  if verb == 'trash' or exhausted(record) then
    bury(record, now)
    store(job)
    return
  end
  local till = delay and now + delay or due
  if till and till <= now then till = nil end
  record[STATE], record[LOCK_UNTIL] = till and 'S' or 'U', till or false
  record[WHO], record[KEEPER], record[MODIFIED_ON] = false, false, now
  store(job)
  tell('ABANDONED', job)
end

local function may_part(job, verb, who, token)
  if not job then return 'absent' end
  local state = job.record[STATE]
  if verb == 'purge' and state ~= 'T' then return 'live' end
  if verb == 'cancel' and state ~= 'U' and state ~= 'S' then return STATUS[state] end
  return (job.record[WHO] or '') == who and job.record[TOKEN] == token and 'ok' or 'lost'
end

statuses = {}
local ids, met = {}, {}
for index, act in ipairs(args[4]) do ids[index] = act[1] end
local blobs = blobs_of(ids)
for index, act in ipairs(args[4]) do
  local id, who, token, verb = unpack(act, 1, 4)
  local job
  if not blobs or met[id] then job = load(id) else job = settle(as_job(id, blobs[index])) end
  met[id] = true
  local parting = verb == 'cancel' and cancel or verb == 'purge' and purge
  local status = parting and may_part(job, verb, who, token) or check(job, who, token)
  if status == 'ok' and parting then
    parting(job, act[6])
  elseif status == 'ok' then
    finish(job, verb, unpack(act, 5, 9))
  end
  statuses[index] = status
end
answer(statuses)
return reply(statuses)
