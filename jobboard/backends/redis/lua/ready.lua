-- What can be claimed, and when more can: for the scripts that look for work. Behind board.lua.

-- A script that has met so many members that stand for nothing looks no further.
local MOST = 1000

-- µs until the next lapse or due time that is still to come, false if there is none.
local function next_event()
  local first = false
  for _, clock in ipairs({LEASES, DUE, FINAL}) do
    local till = redis.call('ZRANGEBYSCORE', clock, '(' .. string.format('%.0f', now), '+inf',
                            'WITHSCORES', 'LIMIT', 0, 1)[2]
    if till and (not first or till - now < first) then first = till - now end
  end
  return first
end

-- The first jobs that can be claimed, in order: postings of a newer version are passed over.
local function ready(names, limit, readable)
  local found = {}
  local function gather(container, set, skip, page)
    local offset, count = 0, 0
    while count < limit and strays < MOST do
      local members = page(offset)
      local ids = members
      if skip then
        ids = {}
        for index, member in ipairs(members) do ids[index] = string.sub(member, skip) end
      end
      local blobs = blobs_of(ids)
      for index, id in ipairs(ids) do
        local job
        if blobs then job = settle(as_job(id, blobs[index])) else job = load(id) end
        if not job or job.state ~= 'U' then
          damage().stray(container, set, members[index], id, job)
          if WRITES then offset = offset - 1 end
        elseif job.record[VERSION] <= readable and count < limit then
          count = count + 1
          found[#found + 1] = job
        end
      end
      if #members < limit then return end
      offset = offset + limit
    end
  end
  if not names then
    gather('ready', READY, nil, function(offset) return redis.call('ZRANGE', READY, offset, offset + limit - 1) end)
    return found
  end
  for _, name in ipairs(names) do
    gather('names', NAMES, #name + 18, function(offset)
      return redis.call('ZRANGEBYLEX', NAMES, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', offset, limit)
    end)
  end
  table.sort(found, by_place)
  for index = #found, limit + 1, -1 do found[index] = nil end
  return found
end

-- Whether anything can be claimed: what is ready, or what has lapsed or come due and no sweep has met.
local function claimable(names, readable)
  if #ready(names, 1, readable) > 0 then return true end
  local wanted = names and set_of(names)
  for container, clock in pairs({leases = LEASES, due = DUE}) do
    local offset = 0
    repeat
      local ids = redis.call('ZRANGEBYSCORE', clock, '-inf', string.format('%.0f', now), 'LIMIT', offset, 1000)
      for _, id in ipairs(ids) do
        local job = load(id)
        if not job or job.clock ~= clock then
          damage().stray(container, clock, id, id, job)
          if WRITES then offset = offset - 1 end
        elseif job.record[STATE] == 'U' and job.record[VERSION] <= readable
               and (not wanted or wanted[job.record[NAME]]) then
          return true
        end
      end
      offset = offset + 1000
    until #ids < 1000
  end
  -- There may be more behind what was met.
  return strays >= MOST
end
