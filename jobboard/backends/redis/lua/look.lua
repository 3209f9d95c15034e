-- Find claimable jobs in order, and overdue jobs, whose lease or delay has ended.
-- Takes:
--   limit: the most claimable jobs
--   names: of the jobs, nil for all
--   readable: the newest version that the caller can read
--   without: names to leave out
--   full: [[name, group], …] to leave out
--   after: a tail behind which to begin, or ''
-- Returns [now, news, µs to the next end of a lease or delay or false, gate or false, ready, overdue, horizon]:
--   ready: [uuid, record, posting, tail, …]
--   overdue: [uuid, record, posting, number of a container, member, …]
--   horizon: the tail behind which there may be more claimable jobs, or false

local limit, names, readable, without, full, after = unpack(args, 1, 6)
local shut = {}
for _, name in ipairs(without) do shut[name] = true end
for _, scope in ipairs(full) do shut[scope[1] .. '\0' .. scope[2]] = true end

-- Return the names of ready jobs but those to leave out. The walk goes from name to name, past the jobs between.
local function other_names()
  local found, from = {}, '[\1'
  while #found < WORDS do
    local member = call('ZRANGEBYLEX', READY, from, '+', 'LIMIT', 0, 1)[1]
    if not member then break end
    local name = string.match(member, '^%Z+')
    if not shut[name] then found[#found + 1] = name end
    from = '(' .. name .. '\1'
  end
  return found
end

local found, horizon, budget = {}, nil, WORDS
local queues = limit > 0 and (names or without[1] and other_names() or {''}) or {}
local size = math.max(1, math.min(full[1] and AHEAD or limit, math.floor(WORDS / math.max(1, #queues))))
for _, name in ipairs(queues) do
  local low, count, members = after == '' and '[' .. name .. '\0' or '(' .. name .. '\0' .. after, 0, nil
  repeat
    members = call('ZRANGEBYLEX', READY, low, '(' .. name .. '\1', 'LIMIT', 0, size)
    budget = budget - #members
    for _, member in ipairs(members) do
      local tail = string.sub(member, #name + 2)
      local version, scope = string.match(tail, '^%Z*%z(%d+)%z(.*)$', 22)
      low = '(' .. member
      if count < limit and version and tonumber(version) <= readable and not shut[scope] then
        found[#found + 1], count = tail, count + 1
      end
    end
  until count >= limit or #members < size or budget <= 0
  if count < limit and #members == size then
    local last = string.sub(members[size], #name + 2)
    if not horizon or last < horizon then horizon = last end
  end
end
table.sort(found)
local ready = {}
for index = 1, math.min(#found, limit) do
  local tail = found[index]
  if horizon and tail > horizon then break end
  local id = string.match(tail, '^%Z*', 22)
  local at = #ready
  ready[at + 1], ready[at + 2], ready[at + 3], ready[at + 4] =
    id, call('HGET', JOBS, id), call('HGET', POSTINGS, id), tail
end

-- A job that has expired behind its delay is in two containers.
local overdue, delayed = {}, {}
for container = N_DUE, N_EXPIRIES do
  local room = OVERDUE - #overdue / 5
  local members = room > 0 and call('ZRANGEBYLEX', KEYS[container], '-', '(' .. digits(now + 1), 'LIMIT', 0, room) or {}
  for _, member in ipairs(members) do
    local id, at = string.sub(member, 37), #overdue
    if container ~= N_EXPIRIES or not delayed[id] then
      overdue[at + 1], overdue[at + 2], overdue[at + 3], overdue[at + 4], overdue[at + 5] =
        id, call('HGET', JOBS, id), call('HGET', POSTINGS, id), container, member
    end
    if container == N_DUE then delayed[id] = true end
  end
end
local first = first_wake('[' .. digits(now + 1))
return cmsgpack.pack({
  now, latest_news(), first and first - now or false, call('HGET', SIDES, GATE), ready, overdue,
  #ready < 4 * limit and horizon or false,
})
