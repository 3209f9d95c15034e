-- What can be claimed, and when more can: for the scripts that look for work. Behind board.lua.

-- µs until the next lapse or due time that is still to come, or a rate that was met opens; false if there is none.
local function next_event()
  local first = false
  for _, clock in ipairs({LEASES, DUE, FINAL}) do
    local till = call('ZRANGEBYSCORE', clock, '(' .. exact(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
    if till and (not first or till - now < first) then first = till - now end
  end
  local opens = limits_made and limits_made.opens()
  return opens and (not first or opens < first) and opens or first
end

local function lies(job, set)
  if set == READY or set == NAMES then return job.state == 'U' end
  return job.clock == set
end

-- The first `limit` jobs of a container that page(offset, number) leads to, by members that end with their ids; `wants`
-- may leave some out. Those that do not belong there are damage.
local function gather(set, skip, limit, size, wants, page)
  local found, offset, members = {}, 0, nil
  repeat
    members = page(offset, size)
    local ids = members
    if skip > 1 then
      ids = {}
      for index, member in ipairs(members) do ids[index] = string.sub(member, skip) end
    end
    for index, job in ipairs(loaded(ids)) do
      if not (job and lies(job, set)) then
        damage().stray(set, members[index], ids[index], job)
        if WRITES then offset = offset - 1 end
      elseif #found < limit and (not wants or wants(job.record)) then
        found[#found + 1] = job
      end
    end
    offset = offset + size
  until #members < size or #found >= limit or strays >= MOST
  return found
end

-- The names of what is ready, but for those in a set: a walk from name to name, whatever lies between.
local function names_but(set)
  local found, from = {}, '-'
  while true do
    local member = call('ZRANGEBYLEX', NAMES, from, '+', 'LIMIT', 0, 1)[1]
    if not member then return found end
    local name = string.match(member, '^%Z*')
    if not set[name] then found[#found + 1] = name end
    from = '(' .. name .. '\1'
  end
end

-- The names to look for, where some are paused; nil: any.
local function allowed(names)
  local rules = rules(true)
  if not rules then return names end
  if rules.everything then return {} end
  if not names then return names_but(rules.names) end
  local left = {}
  for _, name in ipairs(names) do
    if not rules.names[name] then left[#left + 1] = name end
  end
  return left
end

-- The first jobs that can be claimed where nothing is limited, in order: postings of a newer version are passed over,
-- and what is paused. `left_out` may tell more that is.
local function ready(names, limit, readable, left_out)
  local function wants(record) return record[VERSION] <= readable and not (left_out and left_out(record)) end
  names = allowed(names)
  local size = left_out and 1000 or limit
  if not names then
    return gather(READY, 1, limit, size, wants, function(offset, number)
      return call('ZRANGE', READY, offset, offset + number - 1)
    end)
  end
  local found = {}
  for _, name in ipairs(names) do
    local of_name = gather(NAMES, #name + 18, limit, size, wants, function(offset, number)
      return call('ZRANGEBYLEX', NAMES, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', offset, number)
    end)
    for _, job in ipairs(of_name) do found[#found + 1] = job end
  end
  table.sort(found, by_place)
  for index = #found, limit + 1, -1 do found[index] = nil end
  return found
end

-- The first of the jobs that have lapsed or come due, and that no sweep has met; all, where nothing else is wanted.
local function overdue(limit, size, wants)
  local found = {}
  for _, clock in ipairs({DUE, LEASES, FINAL}) do
    local first = #found < limit and call('ZRANGE', clock, 0, 0, 'WITHSCORES')[2]
    if first and tonumber(first) <= now then
      local more = gather(clock, 1, limit - #found, size or limit - #found, wants, function(offset, number)
        return call('ZRANGEBYSCORE', clock, '-inf', exact(now), 'LIMIT', offset, number)
      end)
      for _, job in ipairs(more) do found[#found + 1] = job end
    end
  end
  return found
end

-- Whether a take would find something. There may be more behind what stands for nothing.
local function claimable(names, readable)
  local wanted = names and set_of(names)
  local job, unsure
  if limited() then
    job, unsure = lanes().first(wanted, readable, {})
  else
    job = ready(names, 1, readable)[1]
  end
  if job or unsure then return true end
  local function wants(record)
    return record[STATE] == 'U' and record[VERSION] <= readable and (not wanted or wanted[record[NAME]])
      and not is_paused(record) and not (limited() and not limits().has_room(record))
  end
  return overdue(1, 1000, wants)[1] ~= nil or strays >= MOST
end
