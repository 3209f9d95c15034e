-- What all scripts begin with: the containers, the record of a job, and the one way to move it. The Lua twin of
-- jobboard/states.py, and tested against it.
--
-- KEYS     the containers, in the order of keys.py: every script declares them all
-- ARGV[1]  the arguments of the script, one msgpack array; what is in it stands at the top of each script
-- ARGV[2…] postings, where a script takes any
-- Every script answers one msgpack value, so that RESP2 and RESP3 agree.

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

-- Answers. Mutations have their nonce in args[1…3]: the slot, the number of the call, the number of the try.

-- What was answered, and by which try.
local function answered()
  local blob = redis.call('HGET', ANSWERS, args[1])
  if not blob then return nil end
  local stored = cmsgpack.unpack(blob)
  if stored[1] > args[2] then error('LATE') end
  if stored[1] < args[2] then return nil end
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

-- Waiters. Each sleeps on a channel of its own, and stands in WAITERS under what it waits for:
-- 'a' any job, 'n' .. name a job of that name, 'p' only looks; then a zero, its place in the queue, and its id.
-- BELLS has what it is to be given: see bide.lua.

local BELL = {CAME = 1, TICKET = 2, MEMBERS = 3, READABLE = 4, HANDLE = 5, WHO = 6, LEASE = 7, KEEPER = 8}
local waited

local function anybody()
  if waited == nil then waited = redis.call('EXISTS', WAITERS) == 1 end
  return waited
end

local function bell_of(id)
  local bell = redis.call('HGET', BELLS, id)
  return bell and cmsgpack.unpack(bell) or nil
end

local function forget(id, bell)
  bell = bell or bell_of(id)
  if not bell then return nil end
  redis.call('ZREM', WAITERS, unpack(bell[BELL.MEMBERS]))
  redis.call('HDEL', BELLS, id)
  return bell
end

local function waiting(kind)
  return redis.call('ZRANGEBYLEX', WAITERS, '[' .. kind .. '\0', '(' .. kind .. '\1', 'LIMIT', 0, 100)
end

local function channel(id)
  return WAITERS .. ':' .. id
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

local function as_job(id, blob)
  if not blob then return nil end
  local record = cmsgpack.unpack(blob)
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
      if record[KEY] and job.state then redis.call('HDEL', KEYED, record[KEY]) end
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
  local id, key = job.id, job.record[KEY]
  if key and job.state ~= 'T' then redis.call('HDEL', KEYED, key) end
  lift(job)
  redis.call('HDEL', JOBS, id)
  redis.call('HDEL', POSTINGS, id)
end

-- UNCLAIMED or SCHEDULED -> TRASHED.
local function cancel(job, reason)
  local record = job.record
  if record[STATE] ~= 'U' and record[STATE] ~= 'S' then return STATUS[record[STATE]] end
  record[TOKEN] = next_token(record)
  bury(record, now, reason)
  store(job)
  return 'ok'
end

-- TRASHED -> gone, remembered for a day.
local function purge(job)
  if job.record[STATE] ~= 'T' then return 'live' end
  drop(job)
  redis.call('ZREMRANGEBYSCORE', PURGED, '-inf', string.format('%.0f', now - DAY))
  redis.call('ZADD', PURGED, now, job.id)
  return 'ok'
end

-- Who holds this key: a live job, or nil. One that has lapsed for good lets go of it.
local function holder_of(key)
  local id = redis.call('HGET', KEYED, key)
  local job = id and load(id)
  if job and job.record[STATE] == 'T' then
    store(job)
    return nil
  end
  return job
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

-- Claim a job for one of these waiters, the first that hears of it. It need not ask for it: what it is told, or asks
-- for later where its connection broke meanwhile, is its claim.
local function hand(job, members)
  local id = job.id
  for _, member in ipairs(members) do
    local waiter = string.sub(member, -32)
    local bell = bell_of(waiter)
    if not bell then
      redis.call('ZREM', WAITERS, member)
    elseif job.record[VERSION] <= bell[BELL.READABLE] then
      forget(waiter, bell)
      claimed(job.record, bell[BELL.WHO], bell[BELL.LEASE], bell[BELL.KEEPER])
      local heard = redis.pcall(PUBLISH, channel(waiter), cmsgpack.pack({bell[BELL.TICKET], shown(job)}))
      if type(heard) == 'number' and heard > 0 then
        local given = cmsgpack.pack({bell[BELL.TICKET], now, {id, job.record[TOKEN]}})
        redis.call('HSET', ANSWERS, 'bell:' .. waiter, given)
        store(job)
        tell('CLAIMED', job, bell[BELL.HANDLE])
        return true
      end
      job = load(id)
    end
  end
  return false
end

-- Who waits gets what has come, in the order in which it is served; what is left over is told to all who only look.
local function serve()
  if #came == 0 or not anybody() then return end
  local left = false
  table.sort(came, by_place)
  for _, job in ipairs(came) do
    job = load(job.id)
    if job and job.record[STATE] == 'U' then
      local members = waiting('n' .. job.record[NAME])
      for _, member in ipairs(waiting('a')) do members[#members + 1] = member end
      left = not hand(job, members) or left
    end
  end
  for _, member in ipairs(left and waiting('p') or {}) do
    local waiter = string.sub(member, -32)
    local bell = forget(waiter)
    if bell then redis.pcall(PUBLISH, channel(waiter), cmsgpack.pack({bell[BELL.TICKET], false})) end
  end
end

-- How every script ends.
local function reply(value)
  serve()
  return cmsgpack.pack(value)
end

-- What can be claimed

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

local function readable_job(id, readable)
  local job = load(id)
  return job and job.record[VERSION] <= readable and job or nil
end

-- The first jobs that can be claimed, in order: postings of a newer version are passed over.
local function ready(names, limit, readable)
  local found = {}
  local function gather(most, page)
    local offset, count = 0, 0
    while count < most do
      local ids = page(offset, most)
      for _, id in ipairs(ids) do
        local job = readable_job(id, readable)
        if job and count < most then
          count = count + 1
          found[#found + 1] = job
        end
      end
      if #ids < most then return end
      offset = offset + most
    end
  end
  if not names then
    gather(limit, function(offset, count) return redis.call('ZRANGE', READY, offset, offset + count - 1) end)
    return found
  end
  for _, name in ipairs(names) do
    gather(limit, function(offset, count)
      local members = redis.call('ZRANGEBYLEX', NAMES, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', offset, count)
      for index, member in ipairs(members) do members[index] = string.sub(member, #name + 18) end
      return members
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
  for _, clock in ipairs({LEASES, DUE}) do
    local offset = 0
    repeat
      local ids = redis.call('ZRANGEBYSCORE', clock, '-inf', string.format('%.0f', now), 'LIMIT', offset, 1000)
      for _, id in ipairs(ids) do
        local job = readable_job(id, readable)
        if job and (not wanted or wanted[job.record[NAME]]) then return true end
      end
      offset = offset + 1000
    until #ids < 1000
  end
  return false
end
