-- Store jobs, all of them.
-- args: slot, call, try, drafts [[uuid, name, priority, key, version, max_attempts, delay, due, arrival, trashed], …]
--   arrival, of a job from another board: [who, attempts, retries, error, created on, until when it is held, or when
--   trashed]
-- ARGV[2…]: their postings
-- Answers [now, [one for each: its sequence if it was stored just now; else [created, uuid, record, posting], the
-- latter three missing where the job has left the board]].

local function arrive(job, trashed, who, attempts, retries, reason, created_on, instant)
  local record = job.record
  record[STATE], record[TOKEN], record[WHO], record[ATTEMPTS] = trashed and 'T' or 'C', now, who, attempts
  record[RETRIES], record[ERROR], record[CREATED_ON], record[trashed and MODIFIED_ON or LOCK_UNTIL] = retries, reason, created_on, instant
  redis.call('ZREM', PURGED, job.id)
end

-- The next place in the order of posts. Where the counter is damaged it goes on from the time in ms, which no board has
-- posted as many jobs as.
local function next_sequence()
  local number = redis.pcall('HINCRBY', META, 'sequence', 1)
  local counts = type(number) == 'number' and number > 0 and number < 2 ^ 50
  if counts and (number > 1 or redis.call('EXISTS', JOBS) == 0) then return number end
  damage().note('meta', 'sequence', 'it counts no posts', redis.call('HGET', META, 'sequence') or '')
  number = math.floor(now / 1000)
  redis.call('HSET', META, 'sequence', string.format('%.0f', number))
  return number
end

local drafts = args[4]
local stored, tried = answered('table')
local holders, answers, mine = stored or {}, {}, {}
for index, draft in ipairs(drafts) do mine[draft[1]] = stored and not stored[index] end

-- Whether a draft that another's job has kept out by its key is to be tried anew, as that job has it no longer.
local function freed(draft, id)
  if args[3] <= tried or not id or id == draft[1] or mine[id] then return false end
  local holder = holder_of(draft[4])
  return not holder or holder.id ~= id
end

for index, draft in ipairs(drafts) do
  local id, key, came = draft[1], draft[4], draft[9]
  local trashed = came and draft[10]
  if not stored or freed(draft, holders[index]) then
    local holder = came and load(id) or key and not trashed and holder_of(key)
    holders[index] = holder and holder.id or false
    if not holder then
      local sequence = next_sequence()
      local till = draft[7] and now + draft[7] or draft[8]
      if till and till <= now then till = nil end
      redis.call('HSET', POSTINGS, id, ARGV[index + 1])
      if key and not trashed then redis.call('HSET', KEYED, key, id) end
      local job = {id = id, record = {
        draft[2], draft[3], sequence, key or false, draft[5], draft[6] or false, now,
        till and 'S' or 'U', 0, 0, false, false, till or false, now, false, 0,
      }}
      if came then arrive(job, trashed, unpack(came)) end
      store(job)
      if not trashed then tell('POSTED', job) end
      answers[index] = sequence
    end
  end
  if not answers[index] then
    local job = load(holders[index] or id)
    answers[index] = {not holders[index], unpack(job and shown(job) or {})}
  end
end
if not stored or args[3] > tried then answer(holders) end
return reply({now, answers})
