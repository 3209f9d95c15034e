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

-- What has no place of its own stands with the one before it, and counts like any other: that a fetch is full means
-- that there may be more.
local function of_names(behind)
  local found = {}
  for _, name in ipairs(names) do
    local last = behind or -1
    local low = behind and '(' .. name .. '\0' .. string.format('%016.0f', behind) .. '\255' or '[' .. name .. '\0'
    for _, member in ipairs(redis.call('ZRANGEBYLEX', NAMES, low, '(' .. name .. '\1', 'LIMIT', 0, CHUNK)) do
      last = tonumber(string.sub(member, #name + 2, #name + 17)) or last
      found[#found + 1] = {last, string.sub(member, #name + 18)}
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
      local job = load(id)
      if job then found[#found + 1] = {place(job.record), id} end
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
-- `kept`: in which stored states a job lies there.
local function add(container, kept, fetch)
  sources[#sources + 1] = {container = container, kept = kept, fetch = fetch, entries = fetch(after), at = 1}
end
if states.U then add(names and 'names' or 'ready', set_of({'U'}), names and of_names or in_order(READY)) end
if states.S or states.C then
  add('busy', set_of({'S', 'C'}), in_order(BUSY))
elseif states.U then
  local few = overdue(LEASES) + overdue(DUE) <= 2 * CHUNK
  add('busy', set_of({'S', 'C'}), few and the_overdue() or in_order(BUSY))
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
  return first.entries[first.at - 1], first
end

-- Stands for a place from which to go on, as a job that nobody has asked for.
local function sign(at)
  local record = {'damaged', math.floor(at / 2 ^ 50), math.ceil(at % 2 ^ 50), false, 1, false, now, 'T', 0, 0, false,
                  false, false, now, false, 0}
  return {'', cmsgpack.pack(record), ''}
end

local found, looked, entry_, source, last = {}, 0, nil, nil, nil
while #found < limit and looked < walk do
  entry_, source = next_entry()
  if not entry_ then
    last = nil
    break
  end
  local id = entry_[2]
  local job = load(id)
  looked = looked + 1
  last = nil
  if not (job and source.kept[job.state]) then
    if not (job and job.odd) then damage().stray(source.container, nil, id, id, job) end
    last = sign(entry_[1])
  elseif not (states[job.record[STATE]] and (not wanted or wanted[job.record[NAME]])) then
    last = shown(job)
  else
    found[#found + 1] = shown(job)
  end
  -- A job that lies at another place than its own would lead the next page astray.
  if job and place(job.record) ~= entry_[1] then last = sign(entry_[1]) end
end
if last then found[#found + 1] = last end
return reply({now, found})
