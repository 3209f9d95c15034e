-- Store changes of the engine, all or nothing, if every job and side record still has the tag that the engine read.
-- Takes:
--   handle: of the caller, which hears no events of its own
--   jobs: [uuid, tag or false for a new job, …], to compare
--   sides: [field, tag or false where no record was, …], to compare
--   answer: nil, or [field, number of the call, value], stored if its slot holds the answer of an earlier call
--   drafts: [[uuid, rank, name, version, group, delay in µs, due, µs that its key is kept, µs until it expires, the
--     instant at which it expires, most attempts, key, posting and note, event, arrival: nil or [who, attempts,
--     retries, created on, token, trashed on, failures as msgpack], last fields as msgpack, nil if all are nil], …]
--   blobs: [uuid, record without its tag, …]
--   postings: [uuid, posting, …]
--   gone: [uuid, …], jobs to remove
--   leaves, enters: [[number of a container, members], …]
--   marks: [[field, value or nil, until, or µs from now], …], side records to store
--   events: [[event, uuid], …]
--   ready: [[name, version], …] of jobs that are claimable now
--   soon: [[until, name], …] of leases and delays that are stored
--   wakes: whether all waiters look again
--   reschedules: whether all posters of due jobs look again
--   latest: nil, or the instant from which nothing is stored
-- Returns [false, uuids, fields] of stale jobs and side records, or [true, now, tag, sequence of the first draft].

local handle, jobs, sides, answer, drafts, blobs, postings, gone, leaves, enters, marks, events, ready, soon, wakes,
  reschedules, latest = unpack(args, 1, 17)

-- Return the keys of pairs whose tag is not the stored one, and all stored values.
local function compared(container, pairs_)
  local keys, stale = {}, {}
  for index = 1, #pairs_, 2 do keys[#keys + 1] = pairs_[index] end
  local found = keys[1] and call('HMGET', container, unpack(keys)) or {}
  for index, key in ipairs(keys) do
    local tag = found[index] and string.sub(found[index], 1, 18)
    if tag ~= pairs_[2 * index] then stale[#stale + 1] = key end
  end
  return stale, found
end

local stale, before = compared(JOBS, jobs)
local changed, was = compared(SIDES, sides)
if answer and not is_next(call('HGET', SIDES, answer[1]) or nil, answer[2]) then changed[1] = answer[1] end
if stale[1] or changed[1] or latest and now >= latest then return cmsgpack.pack({false, stale, changed}) end

local adds, news = {}, wakes or ready[1] ~= nil
for _, each in ipairs(enters) do
  local words = {}
  for index, member in ipairs(each[2]) do words[2 * index - 1], words[2 * index] = 0, member end
  adds[each[1]] = words
end

local function add(container, member)
  local words = adds[container] or {}
  adds[container] = words
  words[#words + 1], words[#words + 2] = 0, member
end

-- Decide the state of each draft, as Draft.record in primitives.py does. Records follow once the numbers are known.
for _, draft in ipairs(drafts) do
  local came, till = draft[15], draft[6] and now + draft[6] or draft[7]
  local expires = draft[9] and now + draft[9] or draft[10]
  if came then
    draft.state, draft.till = came[6] and 'TRASHED' or 'CLAIMED', not came[6] and HELD_UNTIL or nil
  elseif till and till > now then
    draft.state, draft.till = 'SCHEDULED', till
  else
    draft.state, draft.till = 'UNCLAIMED', expires
  end
  draft.expires = expires
  news = news or draft.state == 'UNCLAIMED' or draft.till and draft.till - now < CAP
end
for _, each in ipairs(soon) do news = news or each[1] - now < CAP end

-- Draw one number as the tag of all records, one for each draft, and one for each mark: outcomes are listed by theirs.
local tag = numbers(1 + #drafts + #marks, news)
for index, draft in ipairs(drafts) do
  local id, rank, name, version, group, _, _, key_for, _, _, most, key, posting, event, came, last =
    unpack(draft, 1, 16)
  local sequence = tag + index
  local tail = table.concat({string.format('%03.0f', rank) .. digits(sequence) .. id, version, name, group or ''}, '\0')
  local who, attempts, retries, created, token, trashed, failures = unpack(came or {}, 1, 7)
  local record = HEADER .. cmsgpack.pack(tail, name, rank, sequence, key, version, '', draft.state, attempts or 0, most,
    came and math.max(token, now) or 0, who, nil, draft.till, created or now, trashed or now)
    .. (failures or NO_FAILURES) .. cmsgpack.pack(retries or 0, group, key_for and now + key_for, draft.expires)
    .. (last or NONE_BEHIND)
  blobs[#blobs + 1], blobs[#blobs + 2] = id, record
  postings[#postings + 1], postings[#postings + 2] = id, posting
  if event then events[#events + 1] = {event, id} end
  if draft.state == 'TRASHED' then
    add(N_TRASH, digits(LAST - trashed) .. digits(LAST - sequence) .. id)
  else
    add(N_LIVE, tail)
    if draft.state == 'UNCLAIMED' then
      add(N_READY, '\0' .. tail)
      add(N_READY, name .. '\0' .. tail)
      ready[#ready + 1] = {name, version}
    else
      local container = draft.state == 'SCHEDULED' and N_DUE or most and attempts >= most and N_FINAL or N_LEASES
      add(container, digits(draft.till) .. digits(sequence) .. id)
      soon[#soon + 1] = {draft.till, name}
    end
    if draft.expires and not came then add(N_EXPIRIES, digits(draft.expires) .. digits(sequence) .. id) end
  end
end

local record_of = {}
for index = 1, #jobs, 2 do record_of[jobs[index]] = before[(index + 1) / 2] end
for index = 2, #blobs, 2 do
  blobs[index] = digits(tag) .. blobs[index]
  record_of[blobs[index - 1]] = blobs[index]
end
-- Records come last. If the server refuses a command half-way, no job is without its entries, and no answer is stored.
for _, each in ipairs(leaves) do send('ZREM', KEYS[each[1]], each[2]) end
for number, words in pairs(adds) do send('ZADD', KEYS[number], words) end
send('HSET', POSTINGS, postings)
send('HSET', JOBS, blobs)
for index, each in ipairs(events) do events[index] = {each[1], each[2], record_of[each[2]]} end
tell(handle, events)
send('HDEL', JOBS, gone)
send('HDEL', POSTINGS, gone)

if answer then put(answer[1], answer[3], now + HOUR, tag) end
for index, mark in ipairs(marks) do
  local field, value, till, ttl = unpack(mark, 1, 4)
  local own = tag + #drafts + index
  local old = was[index] and listed_as(field, tonumber(string.sub(was[index], 1, 18)) or 0)
  local listed = value and listed_as(field, own)
  if old and old ~= listed then call('ZREM', LISTED, old) end
  if listed and old ~= listed then call('ZADD', LISTED, 0, listed) end
  till = till or ttl and now + ttl
  if value then put(field, value, till, own) else call('HDEL', SIDES, field) end
  if was[index] and not (value and till) then call('ZREM', ENDS, field) end
  if was[index] and value and till then call('ZADD', ENDS, digits(till), field) end
end

for _, each in ipairs(ready) do wake(each[1], each[2]) end
for _, each in ipairs(soon) do remind(each[1], each[2]) end
if wakes then foretell(0) end
if reschedules then publish(META .. ':schedules', '') end
return cmsgpack.pack({true, now, tag, tag + 1})
