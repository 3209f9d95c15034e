-- End claims, each by its own verb.
-- args: slot, call, try, acts [[uuid, who, token, verb, delay in µs, error, refund], …]
-- Answers their statuses.

local statuses = answered()
if statuses then return reply(statuses) end

local function finish(job, verb, delay, reason, refund)
  local record = job.record
  if verb == 'consume' then
    tell('CONSUMED', job)
    drop(job)
    return
  end
  if refund then record[ATTEMPTS] = math.max(0, record[ATTEMPTS] - 1) end
  if reason then record[ERROR] = reason end
  if verb == 'trash' or exhausted(record) then
    bury(record, now)
    store(job)
    return
  end
  record[STATE], record[LOCK_UNTIL] = delay and 'S' or 'U', delay and now + delay or false
  record[WHO], record[KEEPER], record[MODIFIED_ON] = false, false, now
  store(job)
  tell('ABANDONED', job)
end

statuses = {}
for index, act in ipairs(args[4]) do
  local job = load(act[1])
  statuses[index] = check(job, act[2], act[3])
  if statuses[index] == 'ok' then finish(job, act[4], act[5], act[6], act[7]) end
end
answer(statuses)
return reply(statuses)
