-- How many claims may live at once, and how many may begin within a time, as engine/limits.py has it; and where the jobs
-- lie that can be claimed where there are limits. Behind board.lua.
--
-- Scopes: the side record of each lists claims and starts, [[[uuid, token], …], [µs, …]]. It lists at least all claims
-- that live; where it is as long as the limit, those that have ended are left out.
-- Lanes: the ready jobs of one name; where a limit counts by group, of one name and group. What can be said of one job
-- of a lane can be said of all of them, so that one that is full is passed over by one step. HEADS has each lane by the
-- place of its first job, so far as META's field `lanes` tells; LANES has the members of those of a group, as NAMES has
-- those of a name. Neither is there while no limit is set.

function limits()
  if limits_made then return limits_made end

  local CONCURRENCY, RATE, BINDING = 3, 4, 5
  local EMPTY, STEP, FILLED, ALL = '\146\144\144', 1000, 250, RANKS * SEQUENCES
  local rooms, freed, opening, filled = {}, {}, nil, false

  -- The scopes of a name and group, one after the other: key and limit.
  local function scopes(name, group)
    local found, set = {}, (rules() or {}).limits
    set = set and set[name]
    if set and set.name then found[1] = {name, set.name} end
    if set and set.group and group then found[#found + 1] = {name .. '\n' .. group, set.group} end
    return found
  end

  -- How many claims are listed, and where the first stands.
  local function listed(value)
    local kind, high, low = string.byte(value, 2, 4)
    if string.byte(value, 1) ~= 146 or not kind then return nil end
    if kind >= 144 and kind < 160 then return kind - 144, 3 end
    if kind == 220 and low then return high * 256 + low, 5 end
    return kind == 221 and #value > 6 and struct.unpack('>I4', value, 3) or nil, 7
  end

  local function scope_in(blob)
    local side = side_in(blob)
    return side and listed(side.value) and side
  end

  -- A room: what is known of a scope; `value` as it is stored, or `claims` and `starts` where these were needed.
  local function room_of(scope)
    local key = scope[1]
    local room = rooms[key]
    if not room then
      local field = 'scope\0' .. key
      local side = side_of(field, scope_in)
      room = {field = field, limit = scope[2], value = side and side.value or EMPTY}
      rooms[key] = room
    end
    return room
  end

  local function lists_in(value)
    if not listed(value) then return nil end
    local claims, starts = unpack(cmsgpack.unpack(value), 1, 2)
    for _, claim in ipairs(claims) do
      if not (claim[1] > '' and claim[2] >= 0) then return nil end
    end
    for _, start in ipairs(starts) do
      if not (start >= 0 and start < STORABLE) then return nil end
    end
    return {claims, starts}
  end

  local function open(room)
    if room.claims then return room end
    local fine, found = pcall(lists_in, room.value)
    if not (fine and found) then
      damage().drop(SIDES, room.field, room.value)
      found = {{}, {}}
    end
    room.claims, room.starts = found[1], found[2]
    return room
  end

  -- Whether a scope lists neither a claim that lives nor a start that its rate still counts. The last one lives longest.
  local function idle(key, value)
    local fine, found = pcall(lists_in, value)
    if not (fine and found) then return false end
    local name, group = string.match(key, '^([^\n]*)\n?(.*)$')
    for _, scope in ipairs(scopes(name, group)) do
      local rate, last = scope[2][RATE], found[2][#found[2]]
      if scope[1] == key and rate and last and last + math.floor(rate[2] * 1000000) > now then return false end
    end
    for index = #found[1], 1, -1 do
      local id = found[1][index][1]
      if tonumber(call('ZSCORE', LEASES, id) or call('ZSCORE', FINAL, id) or 0) > now then return false end
    end
    return true
  end

  local function length(room)
    return room.claims and #room.claims or listed(room.value)
  end

  -- Leave out those that do not live.
  local function clear(room)
    local claims, live = open(room).claims, {}
    for first = 1, #claims, STEP do
      local ids = {}
      for index = first, math.min(first + STEP - 1, #claims) do ids[#ids + 1] = claims[index][1] end
      local leases, final = call('ZMSCORE', LEASES, unpack(ids)), call('ZMSCORE', FINAL, unpack(ids))
      for index in ipairs(ids) do
        local till = tonumber(leases[index] or final[index] or 0)
        if till > now then live[#live + 1] = claims[first + index - 1] end
      end
    end
    room.claims = live
  end

  -- µs until its rate lets one more begin.
  local function opens_in(room)
    local most, starts = room.limit[RATE][1], open(room).starts
    local first = starts[#starts - most + 1]
    return first and math.max(0, first + math.floor(room.limit[RATE][2] * 1000000) - now) or 0
  end

  -- Whether a scope has no room for one more claim that begins, or is revived.
  local function closed(scope, revived)
    local room, limit = room_of(scope), scope[2]
    local most = limit[BINDING] and limit[CONCURRENCY]
    if most and length(room) >= most then
      clear(room)
      if length(room) >= most then return true end
    end
    local wait = limit[RATE] and not revived and opens_in(room) or 0
    if wait > 0 then opening = math.min(opening or wait, wait) end
    return wait > 0
  end

  -- Whether any scope of a name and group is closed. `shut`: those that are known to be; it takes in what is found out.
  local function full(name, group, shut, revived)
    for _, scope in ipairs(scopes(name, group)) do
      local key = scope[1]
      if shut and shut[key] or closed(scope, revived) then
        if shut then shut[key] = true end
        return true
      end
    end
    return false
  end

  local function has_room(record, revived)
    return not full(record[NAME], record[GROUP], nil, revived)
  end

  local function header(number)
    if number < 16 then return string.char(146, 144 + number) end
    if number < 65536 then return '\146\220' .. struct.pack('>I2', number) end
    return '\146\221' .. struct.pack('>I4', number)
  end

  -- A claim begins, or is revived: it is listed. Now and then, the less often the longer the list, what has ended is left
  -- out, so that it grows to no more than some times what lives.
  local function enter(job, revived)
    local id, record = job.id, job.record
    for _, scope in ipairs(scopes(record[NAME], record[GROUP])) do
      local room, limit, claim = room_of(scope), scope[2], {id, record[TOKEN]}
      local number, at = listed(room.value)
      local counts = limit[CONCURRENCY]
      if counts and length(room) >= 16 and now % length(room) < 4 then clear(room) end
      local packed = cmsgpack.pack(claim)
      -- A list of claims alone, all of which take as much room as this one, is not taken apart.
      if not room.claims and counts and not limit[RATE] and #room.value == at + number * #packed
         and not string.find(room.value, id, at, true) then
        room.value = header(number + 1) .. string.sub(room.value, at, -2) .. packed .. '\144'
      else
        local claims, starts = open(room).claims, room.starts
        if counts then
          local kept = {}
          for _, each in ipairs(claims) do
            if each[1] ~= id then kept[#kept + 1] = each end
          end
          kept[#kept + 1] = claim
          room.claims = kept
        end
        if not limit[RATE] then
          room.starts = {}
        elseif not revived then
          local kept = {}
          for index = math.max(1, #starts - limit[RATE][1] + 2), #starts do kept[#kept + 1] = starts[index] end
          kept[#kept + 1] = now
          room.starts = kept
        end
      end
      room.entered = true
    end
  end

  -- What has been entered is stored at the end of a script.
  local function flush()
    for _, room in pairs(rooms) do
      if room.entered then
        put(room.field, room.claims and cmsgpack.pack({room.claims, room.starts}) or room.value)
        room.entered = nil
      end
    end
  end

  -- Lanes

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
  local function advance(lane)
    local member = members(lane, 0, 1)[1]
    if member then
      call('ZADD', HEADS, tonumber(string.sub(member, #lane + 2, #lane + 17)) or 0, lane)
    else
      call('ZREM', HEADS, lane)
    end
  end

  local function put_in(job)
    local lane, at = lane_of(job.record), place(job.record)
    if container_of(lane) == LANES then call('ZADD', LANES, 0, named(job.id, job.record, lane)) end
    call('ZADD', HEADS, 'LT', at, lane)
  end

  local function take_out(job)
    local lane = lane_of(job.record)
    if container_of(lane) == LANES then call('ZREM', LANES, named(job.id, job.record, lane)) end
    if tonumber(call('ZSCORE', HEADS, lane) or -1) == place(job.record) then advance(lane) end
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
      local page = members(lane, offset, offset == 0 and 1 or 100)
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
    local best, from, size = nil, 0, 8
    while true do
      local heads = call('ZRANGE', HEADS, from, from + size - 1, 'WITHSCORES')
      for index = 1, #heads, 2 do
        local lane, at = heads[index], tonumber(heads[index + 1])
        if at > till or best and at >= place(best.record) then return best, till < ALL end
        local name, group = string.match(lane, '^([^\n]*)\n?(.*)$')
        if group == '' or group == '\1' then group = nil end
        if (not names or names[name]) and not rules().names[name] and not full(name, group, shut) then
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

  -- A claim has ended: who waits for its slots is to have them.
  local function leave(job)
    if anybody() then freed[#freed + 1] = job.record end
  end

  -- The next job for whose claim there is room since others have ended: of the lanes, or names, that these were in.
  local function next_freed(shut)
    local record = freed[#freed]
    local job, unsure
    while record do
      local name, group = record[NAME], record[GROUP]
      local by_name
      for _, scope in ipairs(scopes(name, group)) do
        if scope[2][CONCURRENCY] and scope[1] == name then by_name = true end
      end
      if by_name then
        job, unsure = first({[name] = true}, math.huge, shut)
      elseif scopes(name, group)[1] and not is_paused(record) and not full(name, group, shut) then
        job = front(lane_of(record), math.huge)
      end
      if job or unsure then return job, unsure end
      freed[#freed] = nil
      record = freed[#freed]
    end
  end

  limits_made = {
    scope_in = scope_in, idle = idle, has_room = has_room, enter = enter, flush = flush, lane_of = lane_of, put_in = put_in,
    take_out = take_out, first = first, ruled = ruled, leave = leave, freed = freed, next_freed = next_freed,
    opens = function() return opening end, lists_in = lists_in, container_of = container_of,
  }
  return limits_made
end
