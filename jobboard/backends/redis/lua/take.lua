-- Claim the first jobs in order, if no pause, limit, overdue or damaged job exists.
-- Takes:
--   field, number: the field of the slot's answer, and the number of the call
--   handle, who, keeper: of the claim; keeper is nil if its lease is not kept
--   ttl: the lease in µs
--   limit: the most jobs
--   names: of the jobs, nil for all
--   readable: the newest version that the caller can read
-- Returns false if the case is not that plain: then nothing was done. Else [news, next end, now, claimed]:
--   news, next end: if nothing was claimable, the number of the latest news, and the µs to the next end of a lease or
--     delay or false
--   claimed: [uuid, record, posting, …]

local field, number, handle, who, keeper, ttl, limit, names, readable = unpack(args, 1, 9)
local gate, slot = unpack(call('HMGET', SIDES, GATE, field))
local first, expires = first_wake('[0'), first_of(EXPIRIES, '[0')
if gate or not is_next(slot, number) or first and first <= now or expires and expires <= now
   or names and #names * limit > WORDS then
  return cmsgpack.pack(false)
end

local tails, ids = {}, {}
for _, name in ipairs(names or {''}) do
  local some = call('ZRANGEBYLEX', READY, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, limit)
  for _, member in ipairs(some) do tails[#tails + 1] = string.sub(member, #name + 2) end
end
if names then table.sort(tails) end
for index = #tails, limit + 1, -1 do tails[index] = nil end
if not tails[1] then
  return cmsgpack.pack({latest_news(), first and first - now or false, now, {}})
end
for index, tail in ipairs(tails) do
  local id, version = string.match(tail, '^(%Z*)%z(%d+)%z', 22)
  if not id or tonumber(version) > readable or tail == tails[index - 1] then return cmsgpack.pack(false) end
  ids[index] = id
end
local blobs, postings = call('HMGET', JOBS, unpack(ids)), call('HMGET', POSTINGS, unpack(ids))
local jobs = {}
for index, id in ipairs(ids) do
  local job = opened(blobs[index])
  -- The engine claims a job that expires.
  if not (job and job[STATE] == 'UNCLAIMED' and not job[UNTIL] and job[TAIL] == tails[index] and postings[index]) then
    return cmsgpack.pack(false)
  end
  jobs[index] = job
end

local tag = numbers(1, ttl < CAP)
local ready, live, leases, taken, events, done = {}, {}, {}, {}, {}, {}
for index, job in ipairs(jobs) do
  local id, tail = ids[index], tails[index]
  local token = math.max(job[TOKEN] + 1, now)
  job[STATE], job[UNTIL], job[ATTEMPTS], job[TOKEN] = 'CLAIMED', now + ttl, job[ATTEMPTS] + 1, token
  job[WHO], job[KEEPER], job[MODIFIED] = who, keeper, now
  local blob = closed(job, tag)
  ready[2 * index - 1], ready[2 * index] = '\0' .. tail, job[NAME] .. '\0' .. tail
  local container, member = lease_of(job, id)
  leases[container] = leases[container] or {}
  local ends = leases[container]
  ends[#ends + 1], ends[#ends + 2] = 0, member
  live[2 * index - 1], live[2 * index] = id, blob
  taken[3 * index - 2], taken[3 * index - 1], taken[3 * index] = id, blob, postings[index]
  events[index] = {'CLAIMED', id, blob}
  done[index] = '\147' .. cmsgpack.pack('ok', id, token)
end
send('ZREM', READY, ready)
for container, members in pairs(leases) do send('ZADD', container, members) end
send('HSET', JOBS, live)
put(field, '\147' .. cmsgpack.pack(number, 1) .. '\220' .. struct.pack('>H', #done)
  .. table.concat(done), now + HOUR, tag)
remind(now + ttl, nil)
tell(handle, events)
return cmsgpack.pack({0, false, now, taken})
