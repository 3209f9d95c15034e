-- The list of a scope taken apart: where it is as long as its limit, or tells of a rate. Behind limits.lua.

local entries_made

function entries()
  if entries_made then return entries_made end

  local STEP = 1000

  local function lists_in(value)
    if not limits().listed(value) then return nil end
    local claims, starts = unpack(cmsgpack.unpack(value), 1, 2)
    for _, claim in ipairs(claims) do
      if not (claim[1] > '' and claim[2] >= 0) then return nil end
    end
    for _, start in ipairs(starts) do
      if not (start >= 0 and start < STORABLE) then return nil end
    end
    return {claims, starts}
  end

  -- The starts that a rate counts: what lies far ahead was told by a clock that has been set back since.
  local function counting(starts, rate)
    local kept, last = {}, now + math.max(AHEAD, math.floor(rate[2] * 1000000))
    for _, start in ipairs(starts) do
      if start <= last then kept[#kept + 1] = start end
    end
    return kept
  end

  local function open(room)
    if room.claims then return room end
    local fine, found = pcall(lists_in, room.value)
    if not (fine and found) then
      damage().drop(SIDES, room.field, room.value)
      found = {{}, {}}
    end
    local rate = room.limit[RATE]
    room.claims, room.starts = found[1], rate and counting(found[2], rate) or found[2]
    return room
  end

  -- Until when a rate counts the last of these starts: that of this limit, or another that is set later. nil: none does.
  local function remembered(starts, limit)
    local rate = limit and limit[RATE]
    local span = math.max(REMEMBERED, rate and math.floor(rate[2] * 1000000) or 0)
    for index = #starts, 1, -1 do
      if math.abs(now - starts[index]) < span then return starts[index] + span end
    end
    return nil
  end

  -- When to look at a scope again: it lists a claim that lives, or a start that is remembered. nil: neither, and it may
  -- go. The claim that began last lives longest.
  local function again(key, value)
    local fine, found = pcall(lists_in, value)
    if not (fine and found) or (rules() or {}).damaged then return now + LATER end
    local name, group = string.match(key, '^([^\n]*)\n?(.*)$')
    local limit
    for _, scope in ipairs(limits().scopes(name, group)) do
      if scope[1] == key then limit = scope[2] end
    end
    local till = remembered(found[2], limit)
    -- Its rate may be removed before that.
    if till then return math.min(till, now + 10 * LATER) end
    for index = #found[1], 1, -1 do
      local id = found[1][index][1]
      if tonumber(call('ZSCORE', LEASES, id) or call('ZSCORE', FINAL, id) or 0) > now then return now + LATER end
    end
    return nil
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

  entries_made = {
    lists_in = lists_in, open = open, remembered = remembered, again = again, clear = clear, opens_in = opens_in,
  }
  return entries_made
end
