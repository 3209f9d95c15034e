-- What becomes of jobs: by their holders' verbs, by an operator's, and by those that move what nobody holds.
-- args: slot, call, try, acts [[uuid, verb, whether an operator's, who, token, error, delay in µs, refund, due, retry,
--   lease in µs, keeper, for how long the outcome is kept in µs, result, why it was refused], …]
-- Answers their statuses.

local acts, statuses, parts, verbs = args[4], {}, {}, {}
local stored = answered()
-- To extend again does no harm, and what has lapsed since the first try is revived by it.
if stored and not (acts[1] and acts[1][2] == 'extend') then
  for index, each in ipairs(stored) do statuses[index] = each[1] end
  return reply(statuses)
end

-- Whether this may be done to a settled job: to a claim by its token, or by its owner's name alone; to what nobody
-- holds unless it has changed since it was seen; by an operator whosever it is.
local function check(job, verb, operator, who, token)
  if not job then return 'absent' end
  local record = job.record
  local state = record[STATE]
  if verb == 'restore' or verb == 'purge' then
    if state ~= 'T' then return 'live' end
  elseif verb == 'cancel' then
    if state ~= 'U' and state ~= 'S' then return STATUS[state] end
  elseif operator or not token then
    if state ~= 'C' then return state == 'T' and 'trashed' or 'unclaimed' end
    if operator then return (not token or record[TOKEN] == token) and 'ok' or 'lost' end
    return record[WHO] == who and 'ok' or 'other'
  else
    if state == 'T' or record[TOKEN] ~= token then return 'lost' end
    return record[WHO] and 'ok' or 'unclaimed'
  end
  return (operator or (record[WHO] or '') == who and record[TOKEN] == token) and 'ok' or 'lost'
end

function verbs.extend(job, record, _, _, _, _, _, lease, keeper)
  if record[STATE] ~= 'C' then rules(true) end
  if not revived(job) then return 'lost' end
  record[STATE], record[KEEPER], record[LOCK_UNTIL] = 'C', keeper or false, now + lease
  store(job)
  tell('EXTENDED', job)
end

-- As msgpack has bytes, which are no text.
local function bytes(text)
  return text and '\198' .. struct.pack('>I4', #text) .. text or '\192'
end

-- The outcome of a consumed job, as engine/done.py reads it.
local function leave(job, record, keep, result, refused)
  local fields, begun = {}, record[MODIFIED_ON]
  for index = 1, STAMP - 1 do fields[index] = cmsgpack.pack(record[index]) end
  fields[MODIFIED_ON] = cmsgpack.pack(now)
  local value = '\220' .. string.char(0, #fields + 5) .. cmsgpack.pack(job.id)
    .. bytes(call('HGET', POSTINGS, job.id) or '') .. bytes(result) .. cmsgpack.pack(refused or false, begun)
  put('outcome\0' .. job.id, value .. table.concat(fields), now + keep, true)
end

function verbs.consume(job, record, _, _, _, _, _, _, _, keep, result, refused)
  tell('CONSUMED', job)
  if keep then leave(job, record, keep, result, refused) end
  drop(job)
end

-- Abandon, and trash. It counts as no attempt where that is refunded, or counted as a retry.
local function give_up(job, record, verb, reason, delay, refund, due, retry)
  if reason then failed(record, now, record[WHO], reason) end
  if refund or retry then record[ATTEMPTS] = math.max(0, record[ATTEMPTS] - 1) end
  if retry then record[RETRIES] = record[RETRIES] + 1 end
  if verb == 'trash' or exhausted(record) then
    bury(record, now)
    return store(job)
  end
  local till = delay and now + delay or due
  if till and till <= now then till = nil end
  record[STATE], record[LOCK_UNTIL] = till and 'S' or 'U', till or false
  record[WHO], record[KEEPER], record[MODIFIED_ON] = false, false, now
  store(job)
  tell('ABANDONED', job)
end

function verbs.trash(job, record, ...) give_up(job, record, 'trash', ...) end
function verbs.abandon(job, record, ...) give_up(job, record, 'abandon', ...) end

-- An operator's act is told as nobody's attempt.
local function take_away(job, record, reason)
  if said(reason) then failed(record, now, nil, reason) end
  record[TOKEN] = next_token(record)
end

function verbs.cancel(job, record, reason)
  take_away(job, record, reason)
  bury(record, now)
  store(job)
end

function verbs.release(job, record, reason)
  take_away(job, record, reason)
  tell('RELEASED', job)
  if exhausted(record) then
    if not record[ERRORS][1] then failed(record, now, nil, EXHAUSTED) end
    bury(record, now)
  else
    record[STATE], record[WHO], record[KEEPER], record[LOCK_UNTIL], record[MODIFIED_ON] = 'U', false, false, false, now
  end
  store(job)
end

function verbs.restore(job, record)
  local holder = record[KEY] and holder_of(record[KEY])
  if holder and holder ~= job.id then return 'key' end
  -- What lapsed for good still holds its place among the claims, and its key: it is put into the trash first.
  if job.state ~= 'T' then store(job) end
  uproot(job)
  record[STATE], record[ATTEMPTS], record[RETRIES], record[TOKEN], record[WHO], record[MODIFIED_ON] =
    'U', 0, 0, next_token(record), false, now
  if record[KEY] then lock(job, next_sequence()) end
  store(job)
  tell('POSTED', job)
end

function verbs.purge(job)
  drop(job)
  put('purged\0' .. job.id, '', now + DAY)
end

local ids, met = {}, {}
for index, act in ipairs(acts) do ids[index] = act[1] end
local jobs = loaded(ids)
for index, act in ipairs(acts) do
  local id, verb = act[1], act[2]
  -- One that stands twice in a batch is as the first act has left it.
  local job = met[id] and load(id) or not met[id] and jobs[index]
  local status = check(job, verb, act[3], act[4], act[5])
  if status == 'ok' then status = verbs[verb](job, job.record, unpack(act, 6, 15)) or 'ok' end
  statuses[index], parts[index], met[id] = status, done(status, id, 0), true
end
answer(parts)
return reply(statuses)
