-- What all scripts begin with: the containers, the record of a job, and the one way to move it. The Lua twin of
-- jobboard/states.py, and tested against it.
--
-- KEYS     the containers, in the order of keys.py: every script declares them all
-- ARGV[1]  the arguments of the script, one msgpack array; what is in it stands at the top of each script
-- ARGV[2…] postings, where a script takes any
-- WRITES   set by scripts.py: whether this script may write
-- Every script answers one msgpack value, so that RESP2 and RESP3 agree; and behind it, where it has met anything that
-- is damaged, a second one: see note().

local META, JOBS, POSTINGS, READY, NAMES, BUSY, LEASES, FINAL, DUE, KEYED, TRASH, PURGED, ANSWERS, WAITERS, BELLS,
      ENTITIES = unpack(KEYS)

-- A record, as it lies in JOBS; false stands for None.
local NAME, PRIORITY, SEQUENCE, KEY, VERSION, MAX_ATTEMPTS, CREATED_ON, STATE, ATTEMPTS, TOKEN, WHO, KEEPER,
      LOCK_UNTIL, MODIFIED_ON, ERROR, RETRIES = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16

local STATUS = {U = 'unclaimed', S = 'scheduled', C = 'claimed', T = 'trashed'}
local EXHAUSTED = "the claim lapsed and the job's attempts are used up"
local DAY, SWEEP = 86400e6, 100
-- A waiter sleeps no longer than this, as board.py has it.
local CAP = 10e6

local args = cmsgpack.unpack(ARGV[1])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local PUBLISH = redis.REDIS_VERSION_NUM and 'SPUBLISH' or 'PUBLISH'

local function set_of(list)
  local set = {}
  for _, member in ipairs(list) do set[member] = true end
  return set
end

-- What is damaged: bytes that are no entry, and members without their counterpart. No script ends because of one. It is
-- set aside, by those that may write, and passed over by the others; the board's log has what was there. What reads an
-- entry compares its parts, which raises where one is of another kind, and is called by pcall alone: see damage.lua.

local STORABLE = 2 ^ 53
-- What was met, as the log is told of it; the jobs that were set aside; and how many members stood for nothing.
local notes, aside, strays = nil, nil, 0
-- What few calls need is made by the first that does: each function costs a script that begins.
local damage, waiters

-- Answers. Mutations have their nonce in args[1…3]: the slot, the number of the call, the number of the try.

local function answer_in(blob)
  local stored = cmsgpack.unpack(blob)
  return stored[1] >= 0 and stored[2] >= 0 and stored[4] >= 0 and stored
end

-- What was answered, and by which try. `kind`: the type of what this script stores.
local function answered(kind)
  local blob = redis.call('HGET', ANSWERS, args[1])
  if not blob then return nil end
  local fine, stored = pcall(answer_in, blob)
  if not (fine and stored) then return damage().drop('answers', ANSWERS, args[1], blob) end
  if stored[1] > args[2] then error('LATE') end
  if stored[1] < args[2] then return nil end
  if type(stored[3]) ~= kind then
    return damage().drop('answers', ANSWERS, args[1], blob)
  end
  -- Written again so that WAIT, on a connection that has written nothing yet, waits for what it repeats.
  redis.call('HSET', ANSWERS, args[1], blob)
  return stored[3], stored[4]
end

local function answer(what)
  redis.call('HSET', ANSWERS, args[1], cmsgpack.pack({args[2], now, what, args[3]}))
end

local function repeated()
  return args[3] > 1
end

-- Events, for whoever listens in another process. Nobody does: one look-up a script.

local listening

-- `by`: whose doing it is, where that is not the caller of this script.
local function tell(event, job, by)
  if listening == nil then listening = redis.call('HGET', META, 'listening') end
  if not listening then return end
  local posting = redis.call('HGET', POSTINGS, job.id) or ''
  local message = cmsgpack.pack({by or args[1], event, job.id, cmsgpack.pack(job.record), posting})
  if redis.pcall(PUBLISH, META .. ':events', message) == 0 then
    redis.call('HDEL', META, 'listening')
    listening = false
  end
end

-- Waiters: see waiters.lua.

local waited

local function anybody()
  if waited == nil then waited = redis.call('EXISTS', WAITERS) == 1 end
  return waited
end

-- Who sleeps has reckoned with a later event than this one.
local function remind(container, id, till)
  if till - now < CAP and anybody() and redis.call('ZRANK', container, id) == 0 then
    redis.pcall(PUBLISH, WAITERS .. ':all', string.format('%.0f', till - now))
  end
end

-- Jobs

local function place(record)
  return record[PRIORITY] * 2 ^ 50 + record[SEQUENCE]
end

local function by_place(one, two)
  return place(one.record) < place(two.record)
end

local function named(id, record)
  return record[NAME] .. '\0' .. string.format('%016.0f', place(record)) .. id
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
  local priority, sequence, max_attempts = record[PRIORITY], record[SEQUENCE], record[MAX_ATTEMPTS]
  local key, who, keeper, fault = record[KEY], record[WHO], record[KEEPER], record[ERROR]
  local state, till = record[STATE], record[LOCK_UNTIL]
  return more == nil and record[NAME] > '' and priority >= 0 and priority <= 4 and priority % 1 == 0
    and sequence >= 0 and sequence < 2 ^ 50 and sequence % 1 == 0
    and (key == false or key > '') and record[VERSION] >= 0 and (max_attempts == false or max_attempts > 0)
    and record[CREATED_ON] >= 0 and record[CREATED_ON] < STORABLE
    and record[ATTEMPTS] >= 0 and record[TOKEN] >= 0 and record[TOKEN] < STORABLE
    and (who == false or who >= '') and (keeper == false or keeper >= '')
    and record[MODIFIED_ON] >= 0 and record[MODIFIED_ON] < STORABLE
    and (fault == false or fault >= '') and record[RETRIES] >= 0 and record[RETRIES + 1] == nil
    and ((state == 'U' or state == 'T') and till == false
         or (state == 'C' or state == 'S') and till >= 0 and till < STORABLE)
    and record
end

local function as_job(id, blob)
  if not blob then return nil end
  local fine, record = pcall(sound, blob)
  if not (fine and record) then return damage().set_aside(id, blob) end
  return {id = id, record = record, state = record[STATE], clock = clock_of(record)}
end

-- An empty text is no error, as in Python.
local function said(text)
  return text and text ~= '' and text
end

local function bury(record, at, reason)
  record[STATE], record[KEEPER], record[LOCK_UNTIL], record[MODIFIED_ON] = 'T', false, false, at
  record[ERROR] = said(reason) or record[ERROR]
end

-- The job as it stands now, though nobody has swept; written down by store() alone.
local function settle(job)
  local record = job and job.record
  local till = record and record[LOCK_UNTIL]
  if till and till <= now then
    if clock_of(record) == FINAL then
      bury(record, till, said(record[ERROR]) or EXHAUSTED)
    else
      record[STATE], record[LOCK_UNTIL] = 'U', false
    end
  end
  return job
end

local function load(id)
  return settle(as_job(id, redis.call('HGET', JOBS, id)))
end

-- The records of several ids, by one call; nil: not worth it.
local function blobs_of(ids)
  return ids[2] and redis.call('HMGET', JOBS, unpack(ids))
end

local function next_token(record)
  return math.max(record[TOKEN] + 1, now)
end

local function lift(job, busy)
  local id, record = job.id, job.record
  if job.state == 'U' then
    redis.call('ZREM', READY, id)
    redis.call('ZREM', NAMES, named(id, record))
  elseif job.state == 'T' then
    redis.call('ZREM', TRASH, buried(id, record))
  elseif job.clock then
    redis.call('ZREM', job.clock, id)
    if not busy then redis.call('ZREM', BUSY, id) end
  end
end

-- A job that goes lets go of its key, unless another has it: one of the two was damaged then.
local function unlock(job)
  local key = job.record[KEY]
  if key and redis.call('HGET', KEYED, key) == job.id then redis.call('HDEL', KEYED, key) end
end

-- What this script has made claimable.
local came = {}

-- Write a job down, and move it from where it was to where it belongs.
local function store(job)
  local id, record, clock = job.id, job.record, clock_of(job.record)
  local state = record[STATE]
  if state ~= job.state or clock ~= job.clock then
    lift(job, clock)
    if state == 'U' then
      redis.call('ZADD', READY, place(record), id)
      redis.call('ZADD', NAMES, 0, named(id, record))
      came[#came + 1] = job
    elseif state == 'T' then
      redis.call('ZADD', TRASH, record[MODIFIED_ON], buried(id, record))
      -- What arrives in the trash has never had its key here.
      if job.state then unlock(job) end
      tell('TRASHED', job)
    else
      redis.call('ZADD', BUSY, place(record), id)
    end
  end
  if clock then
    redis.call('ZADD', clock, record[LOCK_UNTIL], id)
    remind(clock, id, record[LOCK_UNTIL])
  end
  redis.call('HSET', JOBS, id, cmsgpack.pack(record))
  job.state, job.clock = state, clock
end

local function drop(job)
  local id = job.id
  if job.record[KEY] and job.state ~= 'T' then unlock(job) end
  lift(job)
  redis.call('HDEL', JOBS, id)
  redis.call('HDEL', POSTINGS, id)
end

-- What a claim makes of a record; written down by store().
local function claimed(record, who, lease, keeper)
  record[STATE], record[ATTEMPTS], record[TOKEN] = 'C', record[ATTEMPTS] + 1, next_token(record)
  record[WHO], record[KEEPER], record[LOCK_UNTIL], record[MODIFIED_ON] = who, keeper or false, now + lease, now
end

local function claim(job, who, lease, keeper)
  claimed(job.record, who, lease, keeper)
  store(job)
  tell('CLAIMED', job)
end

-- Whether somebody may act on the claim of a settled job: by its token, or by name alone.
local function check(job, who, token)
  if not job then return 'absent' end
  local record = job.record
  if not token then
    if record[STATE] == 'C' then return record[WHO] == who and 'ok' or 'other' end
    return record[STATE] == 'T' and 'trashed' or 'unclaimed'
  end
  if record[STATE] == 'T' or record[TOKEN] ~= token then return 'lost' end
  return record[WHO] and 'ok' or 'unclaimed'
end

-- A job as clients read it. They settle it by the time that goes with it.
local function shown(job)
  return {job.id, cmsgpack.pack(job.record), redis.call('HGET', POSTINGS, job.id) or ''}
end

-- How every script ends.
local function reply(value)
  if #came > 0 and anybody() then waiters().serve() end
  if notes then return cmsgpack.pack(value) .. cmsgpack.pack(notes) end
  return cmsgpack.pack(value)
end
