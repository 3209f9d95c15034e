-- Store jobs, all of them.
-- args: slot, call, try, drafts: see posting.lua
-- ARGV[2…]: their postings
-- Answers [now, [one for each: its sequence if it was stored just now; else [created, uuid, record, posting], the
-- latter three missing where the job has left the board]].

local drafts = args[4]
local stored, tried = answered()
local parts, answers, mine = {}, {}, {}
for _, each in ipairs(stored or {}) do
  if each[1] == 'ok' then mine[each[2]] = true end
end

-- Whether a draft that another's job has kept out by its key is to be tried anew, as that job has it no longer.
local function freed(draft, status, whose)
  if status ~= 'key' or args[3] <= tried or mine[whose] then return false end
  local holder = holder_of(draft[4])
  return not holder or holder.id ~= whose
end

for index, draft in ipairs(drafts) do
  local id, key, came, trashed = draft[1], draft[4], draft[11], draft[12]
  local status, whose = unpack(stored and stored[index] or {}, 1, 2)
  if not status or freed(draft, status, whose) then
    local there = came and load(id)
    local holder = there or key and not trashed and holder_of(key)
    status, whose = there and 'live' or holder and 'key' or 'ok', holder and holder.id or id
    if not holder then answers[index] = post(draft, ARGV[index + 1]).record[SEQUENCE] end
  end
  if not answers[index] then
    local job = load(whose)
    answers[index] = {status == 'ok', unpack(job and shown(job) or {})}
  end
  parts[index] = done(status, whose, 0)
end
if not stored or args[3] > tried then answer(parts) end
return reply({now, answers})
