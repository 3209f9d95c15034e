-- Where the jobs lie that can be claimed while there are limits. Behind limits.lua.
-- Lanes: the ready jobs of one name; where a limit counts by group, of one name and group. What can be said of one job
-- of a lane can be said of all of them, so that one that is full is passed over by one step. HEADS has each lane by the
-- place of its first job, so far as META's field `lanes` tells; LANES has the members of those of a group, as NAMES has
-- those of a name. Neither is there while no limit is set.

local lanes_made

function lanes()
  if lanes_made then return lanes_made end

  local FILLED, ALL = 250, RANKS * SEQUENCES
  local filled = false
  -- The first two members of lanes, as they were just read: who takes the first out need not look for the second.
  local behind = {}

  -- That of a name and group, by the limits that are set. No job's group begins with a control character.
  local function lane_of(record)
    local name = record[NAME]
    local set = (rules() or {}).limits
    set = set and set[name]
    return set and set.group and name .. '\n' .. (record[GROUP] or '\1') or name
  end

  local function container_of(lane)
    return string.find(lane, '\n', 1, true) and LANES or NAMES
  end

  local function members(lane, offset, number)
    return call('ZRANGEBYLEX', container_of(lane), '[' .. lane .. '\0', '(' .. lane .. '\1', 'LIMIT', offset, number)
  end

  -- HEADS tells the first of a lane, or nothing where there is none.
  local function advance(lane, member)
    if member == nil then member = members(lane, 0, 1)[1] end
    if member then
      call('ZADD', HEADS, tonumber(string.sub(member, #lane + 2, #lane + 17)) or 0, lane)
    else
      call('ZREM', HEADS, lane)
    end
  end

  local function put_in(job)
    local lane, at = lane_of(job.record), place(job.record)
    behind[lane] = nil
    if container_of(lane) == LANES then call('ZADD', LANES, 0, named(job.id, job.record, lane)) end
    call('ZADD', HEADS, 'LT', at, lane)
  end

  local function take_out(job)
    local lane, member = lane_of(job.record), nil
    if container_of(lane) == LANES then
      member = named(job.id, job.record, lane)
      call('ZREM', LANES, member)
    end
    local two = behind[lane]
    behind[lane] = nil
    if two and two[1] == member then
      advance(lane, two[2] or false)
    elseif tonumber(call('ZSCORE', HEADS, lane) or -1) == place(job.record) then
      advance(lane)
    end
  end

  -- Fill the lanes with what was there before the first limit, a step in each script; up to which place they are filled.
  local function fill()
    local from = tonumber(laned() or '') or -1
    if filled or from >= ALL then return from end
    filled = true
    local entries, ids = call('ZRANGEBYSCORE', READY, '(' .. exact(from), '+inf', 'WITHSCORES', 'LIMIT', 0, FILLED), {}
    for index = 1, #entries, 2 do ids[#ids + 1] = entries[index] end
    for _, job in ipairs(loaded(ids)) do
      if job and job.state == 'U' then put_in(job) end
    end
    from = #ids < FILLED and ALL or tonumber(entries[#entries])
    lay(exact(from))
    return from
  end

  -- The first job of a lane, and whether the lane was mended meanwhile.
  local function front(lane, readable)
    local offset, mended = 0, false
    repeat
      local page = members(lane, offset, offset == 0 and 2 or 100)
      behind[lane] = offset == 0 and page
      for _, member in ipairs(page) do
        local id = string.sub(member, #lane + 18)
        local job = load(id)
        if not (job and job.state == 'U' and named(id, job.record, lane) == member) then
          damage().stray(container_of(lane), member, id, job)
          mended = true
        elseif job.record[VERSION] <= readable then
          if mended then advance(lane) end
          return job, mended
        else
          offset = offset + 1
        end
      end
    until not page[1] or strays >= MOST
    if mended or offset == 0 then advance(lane) end
    return nil, mended
  end

  -- The first job that can be claimed, of these names (a set; nil: of any); nil where there is none, or where it has not
  -- been looked for everywhere yet, which the second answer tells.
  local function first(names, readable, shut)
    if rules().everything then return nil, false end
    local till = fill()
    local best, from, size = nil, 0, 2
    while true do
      local heads = call('ZRANGE', HEADS, from, from + size - 1, 'WITHSCORES')
      for index = 1, #heads, 2 do
        local lane, at = heads[index], tonumber(heads[index + 1])
        if at > till or best and at >= place(best.record) then return best, till < ALL end
        local name, group = string.match(lane, '^([^\n]*)\n?(.*)$')
        if group == '' or group == '\1' then group = nil end
        if (not names or names[name]) and not rules().names[name] and not limits().full(name, group, shut) then
          local job, mended = front(lane, readable)
          if job and (not best or place(job.record) < place(best.record)) then best = job end
          -- Others have moved up.
          if mended then return best, best == nil end
        end
      end
      if #heads < 2 * size then return best, till < ALL or strays >= MOST end
      from, size = from + size, 4 * size
    end
  end

  -- The rules have changed: lanes are laid anew where limits count by other groups.
  local function ruled(before, after)
    local function grouped(set)
      local found = {}
      for name, each in pairs(set and set.limits or {}) do
        if each.group then found[#found + 1] = name end
      end
      table.sort(found)
      return table.concat(found, '\n')
    end
    local limited = after and after.limits
    if (laned() or limited) and not (laned() and limited and grouped(before) == grouped(after)) then
      call('UNLINK', LANES, HEADS)
      lay(limited and '-1')
      if limited then fill() end
    end
  end

  lanes_made = {
    lane_of = lane_of, container_of = container_of, members = members, put_in = put_in, take_out = take_out, front = front, first = first,
    ruled = ruled,
  }
  return lanes_made
end
