-- The next jobs on the board, in the order in which they are served.
-- args: place behind which to begin (or nil), how many, how many to look at, names, states ['U', 'S', 'C', …]
-- Answers [now, [[uuid, record, posting], …]]; where the walk ends early, its last job is one that was not asked for.

local after, limit, walk, names = args[1], args[2], args[3], args[4]
local CHUNK = 500
local states, wanted = set_of(args[5]), names and set_of(names)

local function in_turn(one, two)
  return one[1] < two[1]
end

local function in_order(container)
  return function(behind)
    local low = behind and '(' .. string.format('%.0f', behind) or '-inf'
    local pairs_ = redis.call('ZRANGEBYSCORE', container, low, '+inf', 'WITHSCORES', 'LIMIT', 0, CHUNK)
    local found = {}
    for index = 1, #pairs_, 2 do found[#found + 1] = {tonumber(pairs_[index + 1]), pairs_[index]} end
    return found
  end
end

local function of_names(behind)
  local found = {}
  for _, name in ipairs(names) do
    local low = behind and '(' .. name .. '\0' .. string.format('%016.0f', behind) .. '\255' or '[' .. name .. '\0'
    for _, member in ipairs(redis.call('ZRANGEBYLEX', NAMES, low, '(' .. name .. '\1', 'LIMIT', 0, CHUNK)) do
      found[#found + 1] = {tonumber(string.sub(member, #name + 2, #name + 17)), string.sub(member, #name + 18)}
    end
  end
  table.sort(found, in_turn)
  for index = #found, CHUNK + 1, -1 do found[index] = nil end
  return found
end

-- Where only what can be claimed is asked for, a board full of claims need not be walked through for the few overdue.
local function the_overdue()
  local found = {}
  for _, clock in ipairs({LEASES, DUE}) do
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', clock, '-inf', string.format('%.0f', now))) do
      found[#found + 1] = {place(load(id).record), id}
    end
  end
  table.sort(found, in_turn)
  return function(behind)
    local rest = {}
    for _, entry in ipairs(found) do
      if not behind or entry[1] > behind then rest[#rest + 1] = entry end
    end
    return rest
  end
end

local function overdue(clock)
  return redis.call('ZCOUNT', clock, '-inf', string.format('%.0f', now))
end

local sources = {}
local function add(fetch)
  sources[#sources + 1] = {fetch = fetch, entries = fetch(after), at = 1}
end
if states.U then add(names and of_names or in_order(READY)) end
if states.S or states.C then
  add(in_order(BUSY))
elseif states.U then
  add(overdue(LEASES) + overdue(DUE) <= 2 * CHUNK and the_overdue() or in_order(BUSY))
end

local function next_entry()
  local first
  for _, source in ipairs(sources) do
    if source.at > #source.entries and #source.entries >= CHUNK then
      source.entries, source.at = source.fetch(source.entries[#source.entries][1]), 1
    end
    local entry = source.entries[source.at]
    if entry and (not first or entry[1] < first.entries[first.at][1]) then first = source end
  end
  if not first then return nil end
  first.at = first.at + 1
  return first.entries[first.at - 1][2]
end

local found, looked, job = {}, 0, nil
local fits = true
while #found < limit and looked < walk do
  local id = next_entry()
  if not id then
    fits = true
    break
  end
  job = load(id)
  fits = states[job.record[STATE]] and (not wanted or wanted[job.record[NAME]])
  if fits then found[#found + 1] = shown(job) end
  looked = looked + 1
end
if not fits then found[#found + 1] = shown(job) end
return reply({now, found})
