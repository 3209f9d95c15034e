-- Read a page of an index in its order.
-- Takes:
--   container: its number, of LIVE, TRASH, FINAL or LISTED
--   from, to: bounds of ZRANGEBYLEX
--   most: the most entries to return
--   backwards: whether to begin at `from` as the higher bound
--   names, states: in LIVE, the names and states of the jobs to return, nil for all
--   texts: the texts that the record of each job to return contains
-- Returns [now, entries, last, looked]:
--   entries: [member, record, posting, …], or for LISTED [member, side record, '', …]
--   last: the member behind which to go on, or false at the end
--   looked: the number of members that were looked at

local container, from, to, most, backwards, names, states, texts = unpack(args, 1, 8)
local wanted, letters = {}, {}
for _, name in ipairs(names or {}) do wanted[name] = true end
for _, letter in ipairs(states or {}) do letters[letter] = true end
local walk = (names or states) and WALK or most
local members = call(backwards and 'ZREVRANGEBYLEX' or 'ZRANGEBYLEX', KEYS[container], from, to, 'LIMIT', 0, walk)
local found, keys = {}, {}
for index, member in ipairs(members) do
  if container == N_LIVE then
    keys[index] = string.match(member, '^%Z*', 22)
  elseif container == N_LISTED then
    keys[index] = string.sub(member, 1, 8) == 'outcome\0' and 'outcome\0' .. string.sub(member, 27) or member
  else
    keys[index] = string.sub(member, 37)
  end
end
local blobs = keys[1] and call('HMGET', container == N_LISTED and SIDES or JOBS, unpack(keys)) or {}

-- Return whether a job may have a wanted name and state. The caller judges overdue and damaged jobs.
local function fits(member, blob)
  local job = opened(blob)
  return (not names or wanted[string.match(member, '^%Z*%z%d+%z(%Z*)', 22)])
    and (not states or not job or letters[job[STATE]] or job[UNTIL] and job[UNTIL] <= now)
end

local function contains(blob)
  for _, text in ipairs(texts or {}) do
    if not string.find(blob or '', text, 1, true) then return false end
  end
  return true
end

local last = members[walk] or false
for index, member in ipairs(members) do
  if contains(blobs[index]) and (container ~= N_LIVE or fits(member, blobs[index])) then
    local posting = container ~= N_LISTED and call('HGET', POSTINGS, keys[index]) or ''
    found[#found + 1], found[#found + 2], found[#found + 3] = member, blobs[index], posting
    if #found == 3 * most and index < #members then
      last = member
      break
    end
  end
end
return cmsgpack.pack({now, found, last, #members})
