-- How many claims may live at once, and how many may begin within a time, as engine/limits.py has it. Behind board.lua.
-- Scopes: the side record of each lists claims and starts, [[[uuid, token], …], [µs, …]]. It lists at least all claims
-- that live; where it is as long as the limit, those that have ended are left out.

function limits()
  if limits_made then return limits_made end

  local EMPTY = '\146\144\144'
  local rooms = {}
  -- In how many µs the first of the rates that were met opens, and of which name that is; false: of several.
  local opening, opens_for

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

  local function length(room)
    return room.claims and #room.claims or listed(room.value)
  end

  -- Whether a scope has no room for one more claim that begins, or is revived.
  local function closed(scope, revived)
    local room, limit = room_of(scope), scope[2]
    local most = limit[BINDING] and limit[CONCURRENCY]
    if most and length(room) >= most then
      entries().clear(room)
      if length(room) >= most then return true end
    end
    local wait = limit[RATE] and not revived and entries().opens_in(room) or 0
    if wait > 0 then
      local name = string.match(scope[1], '^[^\n]*')
      opening = math.min(opening or wait, wait)
      opens_for = (opens_for == nil or opens_for == name) and name
    end
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
      if counts and length(room) >= 16 and now % length(room) < 4 then entries().clear(room) end
      local packed = cmsgpack.pack(claim)
      -- A list of claims alone, all of which take as much room as this one, is not taken apart.
      if not room.claims and counts and not limit[RATE] and #room.value == at + number * #packed
         and not string.find(room.value, id, at, true) then
        room.value = header(number + 1) .. string.sub(room.value, at, -2) .. packed .. '\144'
      else
        local claims, starts = entries().open(room).claims, room.starts
        if counts then
          local kept = {}
          for _, each in ipairs(claims) do
            if each[1] ~= id then kept[#kept + 1] = each end
          end
          kept[#kept + 1] = claim
          room.claims = kept
        end
        if limit[RATE] and not revived then
          local kept = {}
          for index = math.max(1, #starts - limit[RATE][1] + 2), #starts do kept[#kept + 1] = starts[index] end
          kept[#kept + 1] = now
          room.starts = kept
        elseif not entries().remembered(starts, limit) then
          room.starts = {}
        end
      end
      room.entered = record[TOKEN]
    end
  end

  -- What has been entered is stored at the end of a script. Its list ends with the last claim, whose token is its version:
  -- no two versions of a scope are alike, and none need be counted.
  local function flush()
    for _, room in pairs(rooms) do
      if room.entered then
        put(room.field, room.claims and cmsgpack.pack({room.claims, room.starts}) or room.value, nil, false, room.entered)
        room.entered = nil
      end
    end
  end

  limits_made = {
    scopes = scopes, listed = listed, scope_in = scope_in, full = full, enter = enter, flush = flush,
    has_room = function(record, revived) return not full(record[NAME], record[GROUP], nil, revived) end,
    opens = function() return opening, opens_for or nil end,
  }
  return limits_made
end
