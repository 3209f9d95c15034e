-- What an operator does to a job: release, cancel, restore, purge.
-- args: slot, call, try, verb, uuid, error, token (of the claim to release; nil for any)
-- Answers the status.

local status = answered('string')
if status then return reply(status) end

local verb, reason, token = args[4], args[6], args[7]
local job = load(args[5])
local record = job and job.record
local state = job and record[STATE]

local function release()
  if state ~= 'C' then return state == 'T' and 'trashed' or 'unclaimed' end
  if token and token ~= record[TOKEN] then return 'lost' end
  record[TOKEN] = next_token(record)
  record[ERROR] = said(reason) or record[ERROR]
  tell('RELEASED', job)
  if exhausted(record) then
    bury(record, now, said(record[ERROR]) or EXHAUSTED)
  else
    record[STATE], record[WHO], record[KEEPER], record[LOCK_UNTIL], record[MODIFIED_ON] = 'U', false, false, false, now
  end
  store(job)
  return 'ok'
end

local function restore()
  if state ~= 'T' then return 'live' end
  if record[KEY] and holder_of(record[KEY]) then return 'key' end
  -- What lapsed for good still holds its place among the claims, and its key: it is put into the trash first.
  if job.state ~= 'T' then store(job) end
  lift(job)
  job.state = nil
  record[STATE], record[ATTEMPTS], record[RETRIES], record[TOKEN], record[WHO], record[MODIFIED_ON] =
    'U', 0, 0, next_token(record), false, now
  if record[KEY] then redis.call('HSET', KEYED, record[KEY], job.id) end
  store(job)
  tell('POSTED', job)
  return 'ok'
end

if not job then
  status = 'absent'
else
  status = ({release = release, cancel = cancel, restore = restore, purge = purge})[verb](job, reason)
end
answer(status)
return reply(status)
