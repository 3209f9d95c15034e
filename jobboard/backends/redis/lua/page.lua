-- The next jobs on the board, in the order in which they are served.
-- args: place behind which to begin (or nil), how many, how many to look at, names, states ['U', 'S', 'C', …]
-- Answers [now, [[uuid, record, posting], …]]; where it has not looked at all, its last job is one that was not asked
-- for, and stands for the place from which to go on.

local after, limit, walk, names = args[1], args[2], args[3], args[4]
local states, wanted = set_of(args[5]), names and set_of(names)
-- [place, uuid, container] of what lies behind `after`; up to where these are all that there are; and how many of each
-- container are read at once: no more than are asked for, where all of them fit.
local entries, horizon, chunk = {}, math.huge, walk

-- A page of a container, whose members open(member, score) to place and uuid.
local function add(container, members, step, open)
  local last = after or -1
  for index = 1, #members, step do
    local at, id = open(members[index], members[index + 1])
    -- What has no place of its own stands with the one before it.
    last = at or last
    entries[#entries + 1] = {last, id, container}
  end
  if #members >= chunk * step then horizon = math.min(horizon, last) end
end

local function in_order(container)
  local low = after and '(' .. exact(after) or '-inf'
  add(container, call('ZRANGEBYSCORE', container, low, '+inf', 'WITHSCORES', 'LIMIT', 0, chunk), 2,
      function(id, score) return tonumber(score), id end)
end

local function of_name(name)
  local low = after and '(' .. name .. '\0' .. string.format('%016.0f', after) .. '\255' or '[' .. name .. '\0'
  add(NAMES, call('ZRANGEBYLEX', NAMES, low, '(' .. name .. '\1', 'LIMIT', 0, chunk), 1, function(member)
    return tonumber(string.sub(member, #name + 2, #name + 17)), string.sub(member, #name + 18)
  end)
end

-- Where only what can be claimed is asked for, a board full of claims need not be walked through for the few overdue.
local function of_few_overdue()
  local few = {}
  for _, clock in ipairs({LEASES, DUE}) do
    local ids = call('ZRANGEBYSCORE', clock, '-inf', exact(now), 'LIMIT', 0, walk)
    if #ids == walk then return false end
    for _, id in ipairs(ids) do few[#few + 1] = id end
  end
  for _, id in ipairs(few) do
    local job = load(id)
    local at = job and place(job.record)
    if at and (not after or at > after) then entries[#entries + 1] = {at, id, BUSY} end
  end
  return true
end

local few = states.U and not (states.S or states.C) and of_few_overdue()
if few or states.S and states.C and not names then chunk = limit end
if states.U and names then
  for _, name in ipairs(names) do of_name(name) end
elseif states.U then
  in_order(READY)
end
if not few then in_order(BUSY) end
table.sort(entries, function(one, two) return one[1] < two[1] end)

-- Stands for a place from which to go on, as a job that nobody has asked for.
local function sign(at)
  at = math.min(math.max(at, 0), RANKS * SEQUENCES - 1)
  local record = {'damaged', math.floor(at / SEQUENCES), math.ceil(at % SEQUENCES), false, 1, 'T', 0, false, 0, false,
                  false, false, now, now, {}, 0, false, false, 0}
  return {'', cmsgpack.pack(record), ''}
end

local found, looked, last = {}, 0, nil
for _, entry in ipairs(entries) do
  local at, id, container = unpack(entry)
  if #found >= limit or looked >= walk or at > horizon then break end
  local job = load(id)
  looked = looked + 1
  last = at
  if not (job and (container == BUSY and job.clock or container ~= BUSY and job.state == 'U')) then
    if not (job and job.odd) then damage().stray(container, id, id, job) end
  elseif states[job.record[STATE]] and (not wanted or wanted[job.record[NAME]]) then
    found[#found + 1] = shown(job)
    -- A job that lies at another place than its own would lead the next page astray.
    if place(job.record) == at and #found == limit then last = nil end
  end
end
if last and (looked < #entries or horizon < math.huge) then found[#found + 1] = sign(last) end
return reply({now, found})
