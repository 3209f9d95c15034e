-- Store jobs, all of them.
-- args: slot, call, try, drafts: see posting.lua
-- ARGV[2…]: their postings
-- Answers [now, [one for each: its sequence if it was stored just now; else [status, uuid, record, posting], where the
-- latter two are missing if the job has left the board]].

local drafts = args[4]
local stored, tried = answered()
local parts, answers, told, mine, made, renewed = {}, {}, {}, {}, {}, {}
for _, each in ipairs(stored or {}) do
  if each[1] == 'ok' then mine[each[2]] = true end
end

-- Whether a draft that another's job has kept out by its key is to be tried anew, as that job has it no longer.
local function freed(draft, status, whose)
  if status ~= 'key' or args[3] <= tried or mine[whose] then return false end
  return holder_of(draft[4]) ~= whose
end

-- A job that nobody has claimed gets what a draft brings.
local function replace(job, draft, posting)
  local record, _, _, priority, _, version, _, delay, due = job.record, unpack(draft, 1, 8)
  local till = delay and now + delay or due
  if till and till <= now then till = nil end
  uproot(job)
  record[PRIORITY], record[VERSION], record[STATE], record[LOCK_UNTIL] = priority, version, till and 'S' or 'U', till or false
  record[ATTEMPTS], record[RETRIES], record[TOKEN], record[WHO], record[KEEPER], record[MODIFIED_ON] =
    0, 0, made[job.id] and record[TOKEN] or next_token(record), false, false, now
  write('HSET', POSTINGS, job.id, posting)
  store(job)
  tell('POSTED', job)
end

for index, draft in ipairs(drafts) do
  local id, key, came, trashed = draft[1], draft[4], draft[12], draft[13]
  local status, whose = unpack(stored and stored[index] or {}, 1, 2)
  if not status or freed(draft, status, whose) then
    local holder, job
    if key and not trashed then holder, job = holder_of(key) end
    -- Its key has come before it, as it was not alive then.
    if came and holder == id then holder = nil end
    if came and load(id) then
      status, whose = 'live', id
    elseif not holder then
      local job = post(draft, ARGV[index + 1], false, #drafts - index)
      status, whose, answers[index], made[id] = 'ok', id, job.record[SEQUENCE], true
    elseif draft[11] and job and (job.record[STATE] == 'U' or job.record[STATE] == 'S') then
      if job.lapsed then lapses[#lapses + 1] = {holder, cmsgpack.pack(job.record), ''} end
      replace(job, draft, ARGV[index + 1])
      status, whose, renewed[holder] = 'replaced', holder, true
    else
      status, whose = 'key', holder
    end
  end
  told[index], parts[index] = {status, whose}, done(status, whose, 0)
end
for index, each in ipairs(told) do
  if not answers[index] or renewed[each[2]] then
    local job = load(each[2])
    answers[index] = {each[1], each[2], unpack(job and shown(job) or {}, 2)}
  end
end
if not stored or args[3] > tried then answer(parts) end
return reply({now, answers, lapses})
