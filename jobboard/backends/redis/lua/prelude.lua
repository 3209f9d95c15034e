-- The beginning of every script: the time, numbers, and functions for jobs, side records, waiters and events.
--
-- KEYS     all containers, in the order of keys.py
-- ARGV[1]  the arguments of the script as one msgpack array, described at the top of each script
-- Every script returns one msgpack value, so that RESP2 and RESP3 agree. scripts.py replaces the words in capitals.

local call = redis.call
local args = cmsgpack.unpack(ARGV[1])
local time = call('TIME')
local now = time[1] * SECOND + time[2]

local function digits(number) return string.format('%018.0f', number) end

-- Return the first of `count` numbers that were never given before. The first number is the tag of all records of this
-- script. If a failover has lost the last number, numbers go on from the time.
-- `news`: waiters whose last look was before look again.
local function numbers(count, news)
  local first = math.max((tonumber(call('HGET', META, 'last') or '') or 0) + 1, now)
  if news then
    call('HSET', META, 'last', digits(first + count - 1), 'news', digits(first))
  else
    call('HSET', META, 'last', digits(first + count - 1))
  end
  return first
end

-- Return the number of the latest news. Damage counts as none: the next news bring a number.
local function latest_news() return tonumber(call('HGET', META, 'news') or 0) or 0 end

-- Send a command with any number of words, which come in pairs, in pieces that Lua can unpack.
local function send(verb, key, words)
  for at = 1, #words, WORDS do call(verb, key, unpack(words, at, math.min(at + WORDS - 1, #words))) end
end

-- Jobs, see records.py: a tag, and a record whose first fields scripts know. None is nil here.

local function fields_of(blob) return {cmsgpack.unpack_limit(blob, FIELDS, BEGIN)} end

-- Return a job as a table of its fields, or nil if there is none or it is damaged: the engine sees to damaged jobs.
local function opened(blob)
  local fine, job = pcall(fields_of, blob or '')
  if not (fine and type(job[TAIL]) == 'string' and type(job[NAME]) == 'string' and type(job[ATTEMPTS]) == 'number'
          and type(job[TOKEN]) == 'number' and type(job[UNTIL] or 0) == 'number' and type(job[MOST] or 0) == 'number') then
    return nil
  end
  job.blob = blob
  return job
end

-- Return the record of an opened job with its changed fields, and the others as they were stored.
local function closed(job, tag)
  local head, rest = string.sub(job.blob, BEGIN - 2, BEGIN), string.sub(job.blob, job[1] + 1)
  return digits(tag) .. head .. cmsgpack.pack(unpack(job, 2, FIELDS + 1)) .. rest
end

-- Return the container and the member of a claimed job among the ends of leases.
local function lease_of(job, id)
  local container = job[MOST] and job[ATTEMPTS] >= job[MOST] and FINAL or LEASES
  return container, digits(job[UNTIL]) .. string.sub(job[TAIL], 4, 21) .. id
end

-- Return the first end in a container from `from` on, a bound of ZRANGEBYLEX, or nil. '[0' is before all ends.
local function first_of(clock, from)
  local member = call('ZRANGEBYLEX', clock, from, '+', 'LIMIT', 0, 1)[1]
  return member and tonumber(string.sub(member, 1, 18))
end

-- Return the end of the first lease or delay, for which waiters wake. An expiry makes no job claimable.
local function first_wake(from)
  local first
  for _, clock in ipairs({DUE, LEASES, FINAL}) do
    local till = first_of(clock, from)
    if till and (not first or till < first) then first = till end
  end
  return first
end

-- Side records: a tag, the end (0: none), and the value. Outcomes are listed by their tags, newest first.

local UNLISTED = {answer = true, purged = true, gate = true}

local function listed_as(field, tag)
  local kind, key = string.match(field, '^(%Z+)%z(.*)$')
  if UNLISTED[kind] then return nil end
  return kind == 'outcome' and kind .. '\0' .. digits(LAST - tag) .. key or field
end

local function put(field, value, till, tag)
  if call('HSET', SIDES, field, digits(tag) .. digits(till or 0) .. value) == 1 and till then
    -- A record that is written again keeps its old entry, which tidy.lua corrects.
    call('ZADD', ENDS, digits(till), field)
  end
end

-- Return whether a slot holds no answer, or the answer of an earlier call: only then may a fast path act.
local function is_next(slot, number)
  local fine, _, stored = pcall(cmsgpack.unpack_limit, slot or '', 1, VALUE + 1)
  return not slot or fine and type(stored) == 'number' and stored < number
end

-- Waiters: WAITERS has a member for each name that a waiter waits for ('' for any), in order of arrival, and BELLS has
-- the members of each waiter. A waiter has a channel of its own. A call takes it out of the queue.

local waited

local function anybody()
  if waited == nil then waited = call('EXISTS', WAITERS) == 1 end
  return waited
end

local function publish(channel, message)
  local heard = redis.pcall(PUBLISH, channel, message)
  return type(heard) == 'number' and heard > 0
end

-- Take a waiter out of the queue. Return whether it was there.
local function forget(id)
  local members = call('HGET', BELLS, id)
  if not members then return false end
  local fine, found = pcall(cmsgpack.unpack, members)
  if fine and type(found) == 'table' and found[1] then call('ZREM', WAITERS, unpack(found)) end
  return call('HDEL', BELLS, id) == 1
end

-- Let all waiters for this name (nil: all waiters) look again in so many µs.
local function foretell(left, name)
  if anybody() then publish(WAITERS .. ':all', digits(left) .. (name or '')) end
end

-- Call the first waiter in the queue that wants a job of this name and version, and that is connected. Without such a
-- waiter, let all waiters for this name look, as some only look. The message is the name of the job.
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

-- A lease or a delay that ends `till` was stored: tell waiters that sleep longer.
local function remind(till, name)
  if till - now < CAP and anybody() and first_wake('[0') == till then foretell(math.max(till - now, 0), name) end
end

-- Publish events to listeners of other processes, as [handle, event, uuid, record, posting], while the jobs are stored.
local function tell(handle, events)
  if not events[1] or redis.pcall('PUBSUB', NUMSUB, META .. ':events')[2] == 0 then return end
  for _, each in ipairs(events) do
    local posting = call('HGET', POSTINGS, each[2]) or ''
    publish(META .. ':events', cmsgpack.pack({handle, each[1], each[2], each[3], posting}))
  end
end
