-- What all scripts begin with: the containers, the record of a job, and the one way to move it. The Lua twin of
-- jobboard/states.py, and tested against it. Behind writes.lua.
--
-- KEYS     the containers, in the order of keys.py: every script declares them all
-- ARGV[1]  the arguments of the script, one msgpack array; what is in it stands at the top of each script
-- ARGV[2…] postings, where a script takes any
-- WRITES   whether this script may write
-- Every script answers one msgpack value, so that RESP2 and RESP3 agree; and behind it, where it has met anything that
-- is damaged, a second one: see damage.lua.

-- What is written in capitals is put in by scripts.py, as it stands elsewhere: containers, the fields of a record, limits.
-- A record has false where Python has None. Its stamp rises with each write of a job, and no two jobs have one sequence,
-- so that no two versions of any job are the same bytes: these are its tag.

local STATUS = {U = 'unclaimed', S = 'scheduled', C = 'claimed', T = 'trashed'}
local args = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

-- As Redis reads a number: Lua's own text of it is cut short.
local function exact(number)
  return string.format('%.0f', number)
end

local function set_of(list)
  local set = {}
  for _, member in ipairs(list) do set[member] = true end
  return set
end

-- What few calls need is made by the first that does: each function costs a script that begins.
local damage, waiters, limits, limits_made, entries, lanes
-- Of what is damaged, see damage.lua: what the log is told of it; the jobs that were set aside; how many members stood
-- for nothing. A script that has met MOST of these looks no further.
local notes, aside, strays = nil, nil, 0

-- Side records: kind, zero, key -> version, until when it counts (false: for ever), and behind these its value. The
-- version tells a record from one that was there before, so that its bytes are its tag.

local function side_in(blob)
  local at, version, till = cmsgpack.unpack_limit(blob, 2)
  return version >= 0 and (not till or till >= 0) and {till = till, value = at < 0 and '' or string.sub(blob, at + 1)}
end

local function side_of(field, reader)
  local blob = call('HGET', SIDES, field)
  if not blob then return nil end
  local fine, found = pcall(reader or side_in, blob)
  if fine and found then return found, blob end
  return damage().drop(SIDES, field, blob), blob
end

-- The rules of the board, as engine/rules.py has them: whether `everything` is paused; a set of the `names` that are; the
-- `limits` of each name that has some, by what they count by. nil where there are none. Where they are `damaged`, nothing
-- is given out, and who asks for a `claim` is told: before anything is written, as what is written stays.
local function rules_in(blob)
  local told, more = cmsgpack.unpack(side_in(blob).value)
  local found = {everything = told[1], names = set_of(told[2])}
  for _, bound in ipairs(told[3]) do
    local limit = bound[1]
    found.limits = found.limits or {}
    found.limits[limit[1]] = found.limits[limit[1]] or {}
    found.limits[limit[1]][limit[2]] = limit
  end
  return more == nil and found
end

local rules_now

local function rules(claim)
  if rules_now == nil then
    local blob = call('HGET', SIDES, GATE)
    local fine, found = false, nil
    if blob then fine, found = pcall(rules_in, blob) end
    rules_now = blob and (fine and found or {everything = true, names = {}, damaged = true})
  end
  if claim and rules_now and rules_now.damaged then error('RULES') end
  return rules_now or nil
end

local function is_paused(record)
  local found = rules()
  return found and (found.everything or found.names[record[NAME]] or false)
end

-- Whether any claim has a limit.
local function limited()
  local found = rules()
  return found and found.limits and true or false
end

-- The next place in the order of posts, or version of a side record; `more`: how many the caller will still ask for, at
-- most, which are counted at once. Those that are left over are nobody's. Where the counter is damaged it goes on from
-- the time in ms, which no board has counted as far as.
local given, counted = 0, 0

local function next_sequence(more)
  given = given + 1
  if given <= counted then return given end
  local step = 1 + (more or 0)
  local last = redis.pcall('HINCRBY', META, 'sequence', step)
  local counts = type(last) == 'number' and last >= step and last < SEQUENCES
  if not (counts and (last > step or call('EXISTS', JOBS) == 0)) then
    damage().note(META, 'sequence', 'it counts no posts', call('HGET', META, 'sequence') or '')
    last = math.floor(now / 1000) + step
    call('HSET', META, 'sequence', exact(last))
  end
  given, counted = last - step + 1, last
  return given
end

-- As what a side record is listed: by its kind and key, an outcome by its version, so that the last one stands last.
local function listed_as(field, blob)
  if string.sub(field, 1, 8) ~= 'outcome\0' then return field end
  local _, version = cmsgpack.unpack_limit(blob, 1)
  return 'outcome\0' .. string.format('%016.0f', version) .. string.sub(field, 9)
end

-- Store a side record, which counts until `till` (nil: for ever), or let go of it. A new scope is looked at by tidy.lua
-- from now on. `version`: nil for the next one.
local function put(field, value, till, listed, version)
  local blob = value and cmsgpack.pack(version or next_sequence(), till or false) .. value
  local was = listed and call('HGET', SIDES, field)
  if was then
    local known, member = pcall(listed_as, field, was)
    call('ZREM', LISTED, known and member or field)
  end
  local fresh
  if blob then fresh = call('HSET', SIDES, field, blob) == 1 else call('HDEL', SIDES, field) end
  local scope = blob and string.sub(field, 1, 6) == 'scope\0'
  if blob and till or scope and fresh then
    call('ZADD', ENDS, exact(till or now), field)
  elseif not scope then
    call('ZREM', ENDS, field)
  end
  if listed and blob then call('ZADD', LISTED, 0, listed_as(field, blob)) end
  return blob and {till or false, value, blob}
end

-- Answers. Mutations have their nonce in args[1…3]: the slot, the number of the call, the number of the try. What is
-- kept of them is what the engine keeps: [call, try, [[status, uuid, token], …]].

local function answer_in(blob)
  local _, till, found = cmsgpack.unpack(blob)
  for _, part in ipairs(found[3]) do
    if not (part[1] > '' and part[2] >= '' and part[3] >= 0) then return nil end
  end
  return till >= 0 and found[1] >= 0 and found[2] >= 0 and found
end

-- What was answered, and by which try.
local function answered()
  local found, blob = side_of('answer\0' .. args[1], answer_in)
  if not found or found[1] < args[2] then return nil end
  if found[1] > args[2] then error('LATE') end
  -- Written again so that WAIT, on a connection that has written nothing yet, waits for what it repeats.
  call('HSET', SIDES, 'answer\0' .. args[1], blob)
  return found[3], found[2]
end

-- One part of an answer, packed as an array of three: a table for each would be what a batch takes longest for.
local function done(status, id, token)
  return '\147' .. cmsgpack.pack(status, id, token)
end

local function answer(parts, slot, number, try)
  -- What it tells of is there before it.
  write_all()
  local field = 'answer\0' .. (slot or args[1])
  local blob = cmsgpack.pack(now, now + HOUR) .. '\147' .. cmsgpack.pack(number or args[2], try or args[3])
    .. '\220' .. string.char(math.floor(#parts / 256), #parts % 256) .. table.concat(parts)
  -- Of one that is overwritten, clean.lua sees when it ends.
  if call('HSET', SIDES, field, blob) == 1 then call('ZADD', ENDS, exact(now + HOUR), field) end
end

-- Events, for whoever listens in another process. Nobody does: one look-up a script.

local listening

-- Up to where there are lanes, see lanes.lua; false where no limit is set.
local laned_now

local function look_up()
  listening, laned_now = unpack(call('HMGET', META, 'listening', 'lanes'), 1, 2)
end

local function laned()
  if laned_now == nil then look_up() end
  return laned_now
end

local function lay(till)
  laned_now = till
  if till then call('HSET', META, 'lanes', till) else call('HDEL', META, 'lanes') end
end

-- `by`: whose doing it is, where that is not the caller of this script.
local function tell(event, job, by)
  if listening == nil then look_up() end
  if not listening then return end
  local posting = call('HGET', POSTINGS, job.id) or ''
  local message = cmsgpack.pack({by or args[1], event, job.id, cmsgpack.pack(job.record), posting})
  if redis.pcall(PUBLISH, META .. ':events', message) == 0 then
    call('HDEL', META, 'listening')
    listening = false
  end
end

-- Waiters: see waiters.lua.

local waited

local function anybody()
  if waited == nil then waited = call('EXISTS', WAITERS) == 1 end
  return waited
end

-- Who sleeps may have reckoned with a later event than one in so many µs, of jobs of this name (nil: of several).
local function foretell(left, name)
  if left >= CAP or not anybody() then return end
  redis.pcall(PUBLISH, WAITERS .. ':all', exact(left) .. (name and ' ' .. name or ''))
end

local function remind(container, job)
  local left = job.record[LOCK_UNTIL] - now
  if left < CAP and anybody() and call('ZRANK', container, job.id) == 0 then foretell(left, job.record[NAME]) end
end

-- Jobs: {id, record, blob: as it is stored, state and clock: where it lies}

local function place(record)
  return record[PRIORITY] * SEQUENCES + record[SEQUENCE]
end

local function by_place(one, two)
  return place(one.record) < place(two.record)
end

local function named(id, record, lane)
  return (lane or record[NAME]) .. '\0' .. string.format('%016.0f', place(record)) .. id
end

local function buried(id, record)
  return string.format('%016.0f', record[SEQUENCE]) .. id
end

local function exhausted(record)
  return record[MAX_ATTEMPTS] and record[ATTEMPTS] >= record[MAX_ATTEMPTS]
end

-- The container that tells when time will move a job; a claim that will not come back lies apart, to be counted.
local function clock_of(record)
  if record[STATE] == 'S' then return DUE end
  if record[STATE] == 'C' then return exhausted(record) and FINAL or LEASES end
  return nil
end

-- The record in a blob, or this one where there is none, if it is one; raises where it is far from that.
local function sound(blob, record)
  local more
  if blob then record, more = cmsgpack.unpack(blob) end
  local priority, sequence, max_attempts, errors = record[PRIORITY], record[SEQUENCE], record[MAX_ATTEMPTS], record[ERRORS]
  local key, who, keeper, group = record[KEY], record[WHO], record[KEEPER], record[GROUP]
  local key_until = record[KEY_UNTIL]
  local state, till = record[STATE], record[LOCK_UNTIL]
  for index = 1, #errors do
    local failure = errors[index]
    if failure[1] < 0 or failure[1] >= STORABLE or failure[2] and failure[2] < '' or failure[3] < 0 or failure[4] < ''
       or failure[5] ~= nil then return nil end
  end
  return more == nil and record[NAME] > '' and priority >= 0 and priority < RANKS and priority % 1 == 0
    and sequence >= 0 and sequence < SEQUENCES and sequence % 1 == 0
    and (key == false or key > '') and record[VERSION] >= 0 and (max_attempts == false or max_attempts > 0)
    and record[CREATED_ON] >= 0 and record[CREATED_ON] < STORABLE
    and record[ATTEMPTS] >= 0 and record[TOKEN] >= 0 and record[TOKEN] < STORABLE
    and (who == false or who >= '') and (keeper == false or keeper >= '') and (group == false or group >= '')
    and record[MODIFIED_ON] >= 0 and record[MODIFIED_ON] < STORABLE and (errors[1] or next(errors) == nil)
    and (key_until == false or key_until >= 0 and key_until < STORABLE)
    and record[RETRIES] >= 0 and record[STAMP] >= 0 and record[STAMP] < STORABLE and record[STAMP + 1] == nil
    and ((state == 'U' or state == 'T') and till == false
         or (state == 'C' or state == 'S') and till >= 0 and till < STORABLE)
    and record
end

local function as_job(id, blob)
  if not blob then return nil end
  local fine, record = pcall(sound, blob)
  if not (fine and record) then return damage().set_aside(id, blob) end
  return {id = id, record = record, blob = blob, state = record[STATE], clock = clock_of(record)}
end

-- An empty text is no error, as in Python.
local function said(text)
  return text and text ~= '' and text
end

-- One failure more. The last ones are kept, as far as they fit.
local function failed(record, on, who, text)
  local errors, kept, size = record[ERRORS], {}, #text
  errors[#errors + 1] = {on, who or false, record[ATTEMPTS], text}
  local first = #errors
  while first > 1 and #errors - first < FAILURES - 1 and size + #errors[first - 1][4] <= FAILURE_BYTES do
    first = first - 1
    size = size + #errors[first][4]
  end
  for index = first, #errors do kept[#kept + 1] = errors[index] end
  record[ERRORS] = kept
end

local function bury(record, at)
  record[STATE], record[KEEPER], record[LOCK_UNTIL], record[MODIFIED_ON] = 'T', false, false, at
end

-- The job as it stands now, though nobody has swept; written down by store() alone. A lapse is one more failure.
local function settle(job)
  local record = job and job.record
  local till = record and record[LOCK_UNTIL]
  if till and till <= now then
    job.lapsed = record[STATE] == 'C'
    if clock_of(record) == FINAL then
      failed(record, till, record[WHO], EXHAUSTED)
      bury(record, till)
    else
      if job.lapsed then failed(record, till, record[WHO], LAPSED) end
      record[STATE], record[LOCK_UNTIL] = 'U', false
    end
  end
  return job
end

local function load(id)
  return settle(as_job(id, call('HGET', JOBS, id)))
end

-- The jobs of several ids, by one call where it is worth it.
local function loaded(ids)
  local jobs, blobs = {}, ids[2] and call('HMGET', JOBS, unpack(ids))
  for index, id in ipairs(ids) do
    jobs[index] = (blobs and settle(as_job(id, blobs[index])) or not blobs and load(id)) or false
  end
  return jobs
end

local function next_token(record)
  return math.max(record[TOKEN] + 1, now)
end

-- Of which jobs claims have ended: who waits for their slots is to have them.
local freed = {}

local function lift(job, busy)
  local id, record = job.id, job.record
  if job.state == 'U' then
    write('ZREM', READY, id)
    write('ZREM', NAMES, named(id, record))
    if laned() then lanes().take_out(job) end
  elseif job.state == 'T' then
    write('ZREM', TRASH, buried(id, record))
  elseif job.clock then
    write('ZREM', job.clock, id)
    if not busy then write('ZREM', BUSY, id) end
    -- Where nobody waits, nobody is to have its slots.
    if job.state == 'C' and laned() and anybody() then freed[#freed + 1] = job.record end
  end
end

-- Out of its place: store() puts it where it belongs then.
local function uproot(job)
  lift(job)
  job.state, job.clock = nil, nil
end

-- A live job holds its key by a side record, with its sequence or a later one as the version.
local function lock(job, version)
  local field = 'key\0' .. job.record[KEY]
  write('HSET', SIDES, field, cmsgpack.pack(version, false) .. job.id)
  if job.record[KEY_UNTIL] then write('ZREM', ENDS, field) end
end

-- A job that goes lets go of its key, once its window has ended; unless another has it: one of the two was damaged then.
local function unlock(job)
  local field, till = job.record[KEY] and 'key\0' .. job.record[KEY], job.record[KEY_UNTIL]
  local held = field and call('HGET', SIDES, field)
  if not held or string.sub(held, -#job.id) ~= job.id then return end
  if till and till > now then put(field, job.id, till) else write('HDEL', SIDES, field) end
end

-- Who holds this key: the uuid of a job that lives, or whose window runs, and that job, unless it has left the board.
local store
-- Lapses that this script writes down for the sake of a key.
local lapses = {}
local function holder_of(key)
  local field = 'key\0' .. key
  local held = side_of(field)
  local job = held and load(held.value)
  -- One that has lapsed for good lets go of it.
  if job and job.record[STATE] == 'T' and job.state ~= 'T' then
    store(job)
    if job.lapsed then lapses[#lapses + 1] = {job.id, job.blob, ''} end
    held = side_of(field)
  end
  if held and held.till then
    if held.till > now then return held.value, job end
    return put(field)
  end
  if held and not (job and job.state ~= 'T' and job.record[KEY] == key) then
    return damage().note(SIDES, field, 'its job does not have this key', held.value)
  end
  return held and held.value, job
end

-- What this script has made claimable.
local came = {}

-- Write a job down, and move it from where it was to where it belongs. `quiet`: the caller tells of it.
function store(job, quiet)
  local id, record, clock = job.id, job.record, clock_of(job.record)
  local state = record[STATE]
  if state ~= job.state or clock ~= job.clock then
    lift(job, clock)
    if state == 'U' then
      write('ZADD', READY, place(record), id)
      write('ZADD', NAMES, 0, named(id, record))
      if laned() then lanes().put_in(job) end
      came[#came + 1] = job
    elseif state == 'T' then
      write('ZADD', TRASH, record[MODIFIED_ON], buried(id, record))
      -- What arrives in the trash has never had its key here.
      if job.state then unlock(job) end
      if not quiet then tell('TRASHED', job) end
    else
      write('ZADD', BUSY, place(record), id)
    end
  end
  if clock then
    write('ZADD', clock, record[LOCK_UNTIL], id)
    remind(clock, job)
  end
  record[STAMP] = math.max(record[STAMP] + 1, now)
  job.blob, job.state, job.clock = cmsgpack.pack(record), state, clock
  write('HSET', JOBS, id, job.blob)
end

local function drop(job)
  local id = job.id
  if job.state ~= 'T' then unlock(job) end
  lift(job)
  write('HDEL', JOBS, id)
  write('HDEL', POSTINGS, id)
end

-- What a claim makes of a job; written down by store().
local function claimed(job, who, lease, keeper)
  local record = job.record
  record[STATE], record[ATTEMPTS], record[TOKEN] = 'C', record[ATTEMPTS] + 1, next_token(record)
  record[WHO], record[KEEPER], record[LOCK_UNTIL], record[MODIFIED_ON] = who, keeper or false, now + lease, now
  job.blob = nil
end

-- Whether a claim that is to be prolonged has its slots: one that has lapsed has to enter its scopes anew. A lapse that
-- no sweep has written down is not to show.
local function revived(job)
  if job.lapsed then job.record[ERRORS] = cmsgpack.unpack(job.blob)[ERRORS] end
  local found = job.record[STATE] ~= 'C' and rules()
  if not found then return true end
  if found.damaged or found.limits and not limits().has_room(job.record, true) then return false end
  if found.limits then limits().enter(job, true) end
  return true
end

-- A job as clients read it: as it is stored. They settle it by the time that goes with it.
local function shown(job, posting)
  return {job.id, job.blob or cmsgpack.pack(job.record), posting or call('HGET', POSTINGS, job.id) or '', job.odd}
end

local function all_shown(jobs)
  local list, ids = {}, {}
  for index, job in ipairs(jobs) do ids[index] = job.id end
  local postings = ids[2] and call('HMGET', POSTINGS, unpack(ids)) or {}
  for index, job in ipairs(jobs) do list[index] = shown(job, postings[index]) end
  return list
end

-- How every script ends.
local function reply(value)
  if (came[1] or freed[1]) and anybody() then waiters().serve() end
  if limits_made then limits_made.flush() end
  write_all()
  if notes then return cmsgpack.pack(value) .. cmsgpack.pack(notes) end
  return cmsgpack.pack(value)
end
