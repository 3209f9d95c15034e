-- What every script begins with: the time, numbers, and how jobs, side records and waiters are stored.
--
-- KEYS     the containers, in the order of keys.py: every script declares them all
-- ARGV[1]  the arguments of the script, one msgpack array, described at the top of each script
-- Every script returns one msgpack value, so that RESP2 and RESP3 agree. scripts.py puts in the words in capitals.

local call = redis.call
local args = cmsgpack.unpack(ARGV[1])
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local function digits(number) return string.format('%018.0f', number) end

-- Numbers that nobody has been given before: `count` of them, of which the first tags all that this script writes. They
-- go on with the clock if a failover has lost the latest. `news`: a waiter that has looked before is to look again.
local function numbers(count, news)
  local first = math.max((tonumber(call('HGET', META, 'last') or '') or 0) + 1, now)
  if news then
    call('HSET', META, 'last', digits(first + count - 1), 'news', digits(first))
  else
    call('HSET', META, 'last', digits(first + count - 1))
  end
  return first
end

-- A command of any number of words, in pieces that Lua unpacks. The words come in pairs.
local function send(verb, key, words)
  for at = 1, #words, WORDS do call(verb, key, unpack(words, at, math.min(at + WORDS - 1, #words))) end
end

-- Jobs, see records.py: a tag, and a record whose first fields scripts know. A field that is None is nil here.

local function fields_of(blob) return {cmsgpack.unpack_limit(blob, FIELDS, BEGIN)} end

-- A job; nil where there is none, or none that can be decoded: the engine sees to that.
local function opened(blob)
  local fine, job = pcall(fields_of, blob or '')
  if not (fine and type(job[TAIL]) == 'string' and type(job[NAME]) == 'string' and type(job[ATTEMPTS]) == 'number'
          and type(job[TOKEN]) == 'number' and type(job[UNTIL] or 0) == 'number' and type(job[MOST] or 0) == 'number') then
    return nil
  end
  job.rest = string.sub(blob, job[1] + 1)
  return job
end

local function closed(job, tag)
  return digits(tag) .. HEADER .. cmsgpack.pack(unpack(job, 2, FIELDS + 1)) .. job.rest
end

-- Where a claimed job lies among the ends of leases: the container and the member.
local function lease_of(job, id)
  local container = job[MOST] and job[ATTEMPTS] >= job[MOST] and FINAL or LEASES
  return container, digits(job[UNTIL]) .. string.sub(job[TAIL], 4, 21) .. id
end

-- When the first lease or delay ends that ends at `from`, as a bound of ZRANGEBYLEX has it, or later; nil if none does.
local function first_end(from)
  local first
  for _, clock in ipairs({DUE, LEASES, FINAL}) do
    local member = call('ZRANGEBYLEX', clock, from, '+', 'LIMIT', 0, 1)[1]
    local till = member and tonumber(string.sub(member, 1, 18))
    if till and (not first or till < first) then first = till end
  end
  return first
end

-- Side records: a tag, until when it counts (0: for ever), and the value. An outcome is listed by its tag, newest first.

local UNLISTED = {answer = true, purged = true, gate = true}

local function listed_as(field, tag)
  local kind, key = string.match(field, '^(%Z+)%z(.*)$')
  if UNLISTED[kind] then return nil end
  return kind == 'outcome' and kind .. '\0' .. digits(LAST - tag) .. key or field
end

local function put(field, value, till, tag)
  if call('HSET', SIDES, field, digits(tag) .. digits(till or 0) .. value) == 1 and till then
    -- Of one that is written again, tidy.lua sees when it ends.
    call('ZADD', ENDS, digits(till), field)
  end
end

-- Whether a slot holds the answer of an earlier call than this, or none: only then may a fast path act.
local function is_next(slot, number)
  local fine, _, stored = pcall(cmsgpack.unpack_limit, slot or '', 1, VALUE + 1)
  return not slot or fine and type(stored) == 'number' and stored < number
end

-- Waiters: each stands in WAITERS under the names that it waits for ('' for any), by when it came, and has a channel of
-- its own; BELLS has its members. It leaves the queue when it is called.

local waited

local function anybody()
  if waited == nil then waited = call('EXISTS', WAITERS) == 1 end
  return waited
end

local function publish(channel, message)
  local heard = redis.pcall(PUBLISH, channel, message)
  return type(heard) == 'number' and heard > 0
end

-- Take a waiter out of the queue; whether it was in it.
local function forget(id)
  local members = call('HGET', BELLS, id)
  if not members then return false end
  call('ZREM', WAITERS, unpack(cmsgpack.unpack(members)))
  return call('HDEL', BELLS, id) == 1
end

-- Have all who wait for jobs of this name (nil: for any) look again in so many µs.
local function foretell(left, name)
  if anybody() then publish(WAITERS .. ':all', digits(left) .. (name or '')) end
end

-- Call the first waiter in the queue that would claim this job, and hears it; if there is none, all who wait for such.
-- The call says the name of the job.
local function wake(name, version)
  if not anybody() then return end
  for _, queue in ipairs({name .. '\0', '\0'}) do
    local low, high, passed = '[' .. queue, '(' .. queue .. '\255', 0
    while true do
      local member = call('ZRANGEBYLEX', WAITERS, low, high, 'LIMIT', passed, 1)[1]
      if not member then break end
      local readable, id = tonumber(string.sub(member, -50, -33)) or 0, string.sub(member, -32)
      if readable < version then
        passed = passed + 1
      else
        call('ZREM', WAITERS, member)
        forget(id)
        if publish(WAITERS .. ':' .. id, name) then return end
      end
    end
  end
  foretell(0, name)
end

-- A lease or a delay of a job was stored that ends `till`. Those who sleep may have reckoned with a later end.
local function remind(till, name)
  if till - now < CAP and anybody() and first_end('-') == till then foretell(math.max(till - now, 0), name) end
end

-- Events, for those who listen in other processes: [event, uuid, record], to which the posting is added. Sent before a
-- job is removed.
local function tell(handle, events)
  if not events[1] or redis.pcall('PUBSUB', NUMSUB, META .. ':events')[2] == 0 then return end
  for _, each in ipairs(events) do
    local posting = call('HGET', POSTINGS, each[2]) or ''
    publish(META .. ':events', cmsgpack.pack({handle, each[1], each[2], each[3], posting}))
  end
end
