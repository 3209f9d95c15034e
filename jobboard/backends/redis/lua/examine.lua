-- One page of a container: what in it no script has left there. Each page is one instant, so that what moves meanwhile
-- is not taken for damage.
-- args: container, cursor, the types of all containers
-- Answers [cursor of the next page ('0': none), [[entry, what is odd: see doctor.py], …]]. Where containers are of another type, these
-- alone, by their numbers.

local NAMED = {meta = META, jobs = JOBS, postings = POSTINGS, ready = READY, names = NAMES, busy = BUSY, leases = LEASES,
               final = FINAL, due = DUE, keyed = KEYED, trash = TRASH, answers = ANSWERS, waiters = WAITERS,
               bells = BELLS, entities = ENTITIES}
local container = NAMED[args[1]]
local odd = {}

-- The job as it is stored: nil where there is none, false where it is damaged.
local function stored(id)
  local blob = redis.call('HGET', JOBS, id)
  if not blob then return nil end
  local fine, record = pcall(sound, blob)
  if not (fine and record) then return false end
  return {id = id, record = record, state = record[STATE], clock = clock_of(record)}
end

local function lies(set, member, score)
  local found = redis.call('ZSCORE', set, member)
  return found and tonumber(found) == score
end

local function of_job(id)
  local job = stored(id)
  if not job then return 'damaged' end
  local record, state = job.record, job.state
  local placed = state == 'U' and lies(READY, id, place(record)) and lies(NAMES, named(id, record), 0)
    or state == 'T' and lies(TRASH, buried(id, record), record[MODIFIED_ON])
    or job.clock and lies(BUSY, id, place(record)) and lies(job.clock, id, record[LOCK_UNTIL])
  if not placed then
    if state == 'C' and record[LOCK_UNTIL] > now then return 'lost claim' end
    return (state == 'T' or job.clock == FINAL) and 'lost in trash' or 'lost'
  end
  if record[KEY] and state ~= 'T' and redis.call('HGET', KEYED, record[KEY]) ~= id then return 'key' end
  if redis.call('HEXISTS', POSTINGS, id) == 0 then return 'details' end
  return not string.find(id, '^%x+%-%x+%-%x+%-%x+%-%x+$') and 'uuid'
end

-- Of a damaged record its own entry tells.
local function of_member(id, fits)
  local job = stored(id)
  if job == nil then return 'no job' end
  return job and not fits(job) and 'elsewhere'
end

local function of_entity(entity, text)
  return not (string.find(entity, '^%Z+%z%Z+$') and pcall(cjson.decode, cmsgpack.unpack(text)[2])) and 'entry'
end

local A_NAME = '^(.-)%z' .. string.rep('%d', 16) .. '(.+)$'
local CHECKS = {
  jobs = of_job,
  postings = function(id) return stored(id) == nil and 'no job' end,
  ready = function(id) return of_member(id, function(job) return job.state == 'U' end) end,
  busy = function(id) return of_member(id, function(job) return job.clock end) end,
  names = function(member)
    local _, id = string.match(member, A_NAME)
    return of_member(id or '', function(job) return job.state == 'U' and named(id, job.record) == member end)
  end,
  keyed = function(key, id)
    return of_member(id, function(job) return job.state ~= 'T' and job.record[KEY] == key end)
  end,
  trash = function(member)
    local id = string.sub(member, 17)
    return of_member(id, function(job) return job.state == 'T' and buried(id, job.record) == member end)
  end,
  answers = function(_, blob) return not answer_in(blob) and 'entry' end,
  bells = function(_, blob) return not waiters().bell_in(blob) and 'entry' end,
  entities = function(entity, blob) return not damage().entity_in(blob) and 'entry' or of_entity(entity, blob) end,
  waiters = function(member) return redis.call('HEXISTS', BELLS, string.sub(member, -32)) == 0 and 'no bell' end,
  meta = function(field, value)
    if field == 'layout' or field == 'min_reader' then return not tonumber(value) and 'layout' end
    local number = field == 'sequence' and tonumber(value)
    return field == 'sequence' and not (number and number >= 0 and number < 2 ^ 50) and 'counter'
  end,
}
for _, name in ipairs({'leases', 'final', 'due'}) do
  CHECKS[name] = function(id) return of_member(id, function(job) return job.clock == container end) end
end

for index, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' and kind ~= args[3][index] then odd[#odd + 1] = {index, 'type'} end
end
if #odd > 0 then return reply({'0', odd}) end
local page = redis.call(redis.call('TYPE', container).ok == 'hash' and 'HSCAN' or 'ZSCAN', container, args[2], 'COUNT', 200)
for index = 1, #page[2], 2 do
  local fine, found = pcall(CHECKS[args[1]], page[2][index], page[2][index + 1])
  if not fine or found then odd[#odd + 1] = {page[2][index], fine and found or 'entry'} end
end
return reply({page[1], odd})
