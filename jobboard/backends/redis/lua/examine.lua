-- One page of a container: what in it no script has left there. Each page is one instant, so that what moves meanwhile
-- is not taken for damage.
-- args: number of the container, cursor, the types of all containers
-- Answers [cursor of the next page ('0': none), [[entry, what is odd: see doctor.py], …]]. Where containers are of
-- another type, these alone, by their numbers.

local odd = {}

-- The job as it is stored: nil where there is none, false where it is damaged.
local function stored(id)
  local blob = call('HGET', JOBS, id)
  if not blob then return nil end
  local fine, record = pcall(sound, blob)
  return fine and record and {record = record, state = record[STATE], clock = clock_of(record)}
end

local function lies(set, member, score)
  return tonumber(call('ZSCORE', set, member) or 'nan') == score
end

local function holds(job, id)
  local key = job.state ~= 'T' and job.record[KEY]
  local held = key and call('HGET', SIDES, 'key\0' .. key)
  return not key or held and side_in(held).value == id
end

local function in_lane(id, record)
  local lane = lanes().lane_of(record)
  return not laned() or place(record) > tonumber(laned())
    or lies(lanes().container_of(lane), named(id, record, lane), 0)
      and tonumber(call('ZSCORE', HEADS, lane) or 'nan') <= place(record)
end

local function is_uuid(id)
  return string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+$')
end

local function of_job(id)
  local job = stored(id)
  if not job then
    -- What can be set aside has details, or no board would show it; and what no board has posted goes as a whole.
    return not is_uuid(id) and 'uuid' or call('HEXISTS', POSTINGS, id) == 0 and 'bare' or 'damaged'
  end
  local record, state = job.record, job.state
  local placed = state == 'U' and lies(READY, id, place(record)) and lies(NAMES, named(id, record), 0) and in_lane(id, record)
    or state == 'T' and lies(TRASH, buried(id, record), record[MODIFIED_ON])
    or job.clock and lies(BUSY, id, place(record)) and lies(job.clock, id, record[LOCK_UNTIL])
  if not placed then
    if state == 'C' and record[LOCK_UNTIL] > now then return 'lost claim' end
    return (state == 'T' or job.clock == FINAL) and 'lost in trash' or 'lost'
  end
  if not holds(job, id) then return 'key' end
  if call('HEXISTS', POSTINGS, id) == 0 then return 'details' end
  return not is_uuid(id) and 'uuid'
end

-- Of a damaged record its own entry tells.
local function of_member(id, fits)
  local job = stored(id)
  if job == nil then return 'no job' end
  return job and not fits(job) and 'elsewhere'
end

-- Whether the damaged record of a job still tells this key, which it then lets go of as it is set aside.
local function tells(id, key)
  local fine, record = pcall(cmsgpack.unpack, call('HGET', JOBS, id))
  return fine and type(record) == 'table' and record[KEY] == key
end

-- The engine tells of the gate.
local function of_side(field, blob)
  if field == GATE then return false end
  local kind, key = string.match(field, '^(%Z+)%z(.+)$')
  local side = side_in(blob)
  if not (kind and side) then return 'entry' end
  if kind == 'key' and not side.till then
    if stored(side.value) == false then return not tells(side.value, key) and 'left' end
    return of_member(side.value, function(job) return job.record[KEY] == key and holds(job, side.value) end)
  end
  if side.till and not call('ZSCORE', ENDS, field) then return 'end' end
  if kind == 'outcome' then
    -- An array, and its first value: cmsgpack knows no bytes, of which there are some behind it.
    local _, uuid = cmsgpack.unpack_limit(side.value, 1, 3)
    if string.byte(side.value) ~= 220 or uuid ~= key then return 'entry' end
    return not call('ZSCORE', LISTED, listed_as(field, blob)) and 'unlisted'
  end
  if kind == 'scope' then return not entries().lists_in(side.value) and 'entry' end
  return (kind == 'answer' and not answer_in(blob) or kind == 'entity' and not cjson.decode(side.value)[4]) and 'entry'
end

local function of_side_member(field)
  return call('HEXISTS', SIDES, field) == 0 and 'no side'
end

local function of_listed(member)
  return of_side_member(string.sub(member, 1, 8) == 'outcome\0' and 'outcome\0' .. string.sub(member, 25) or member)
end

local function of_clock(clock)
  return function(id) return of_member(id, function(job) return job.clock == clock end) end
end

local CHECKS = {
  [JOBS] = of_job, [SIDES] = of_side, [ENDS] = of_side_member, [LISTED] = of_listed,
  [LEASES] = of_clock(LEASES), [FINAL] = of_clock(FINAL), [DUE] = of_clock(DUE),
  [POSTINGS] = function(id) return stored(id) == nil and 'no job' end,
  [READY] = function(id) return of_member(id, function(job) return job.state == 'U' end) end,
  [BUSY] = function(id) return of_member(id, function(job) return job.clock end) end,
  [NAMES] = function(member)
    local id = string.match(member, '^.-%z' .. string.rep('%d', 16) .. '(.+)$') or ''
    return of_member(id, function(job) return job.state == 'U' and named(id, job.record) == member end)
  end,
  [LANES] = function(member)
    local id = string.match(member, '^.-%z' .. string.rep('%d', 16) .. '(.+)$') or ''
    return of_member(id, function(job)
      return job.state == 'U' and named(id, job.record, lanes().lane_of(job.record)) == member
    end)
  end,
  [HEADS] = function(lane, at)
    local member = lanes().members(lane, 0, 1)[1]
    return not (member and tonumber(string.sub(member, #lane + 2, #lane + 17)) >= tonumber(at)) and 'no lane'
  end,
  [TRASH] = function(member)
    local id = string.sub(member, 17)
    return of_member(id, function(job) return job.state == 'T' and buried(id, job.record) == member end)
  end,
  [BELLS] = function(_, blob) return not waiters().bell_in(blob) and 'entry' end,
  [WAITERS] = function(member) return call('HEXISTS', BELLS, string.sub(member, -32)) == 0 and 'no bell' end,
  [META] = function(field, value)
    if field == 'layout' or field == 'min_reader' then return not tonumber(value) and 'layout' end
    local number = field == 'sequence' and tonumber(value)
    return field == 'sequence' and not (number and number >= 0 and number < SEQUENCES) and 'counter'
  end,
}

for index, key in ipairs(KEYS) do
  local kind = call('TYPE', key).ok
  if kind ~= 'none' and kind ~= args[3][index] then odd[#odd + 1] = {index, 'type'} end
end
if odd[1] then return reply({'0', odd}) end
local container = KEYS[args[1]]
local page = call(args[3][args[1]] == 'hash' and 'HSCAN' or 'ZSCAN', container, args[2], 'COUNT', 200)
for index = 1, #page[2], 2 do
  local fine, found = pcall(CHECKS[container], page[2][index], page[2][index + 1])
  if not fine or found then odd[#odd + 1] = {page[2][index], fine and found or 'entry'} end
end
return reply({page[1], odd})
