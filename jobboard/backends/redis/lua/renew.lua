-- Prolong those of the given claims that live and that the handle keeps.
-- Takes:
--   handle: of the keeper
--   ttl: the new lease in µs from now
--   claims: [uuid, token, …]
-- Returns the other claims, as [uuid, token, …].

local handle, ttl, claims = unpack(args, 1, 3)
local ids, others, jobs, gone, ends = {}, {}, {}, {}, {}
for index = 1, #claims, 2 do ids[#ids + 1] = claims[index] end
local blobs, tag = call('HMGET', JOBS, unpack(ids)), numbers(1)
for index, id in ipairs(ids) do
  local job, token = opened(blobs[index]), claims[2 * index]
  if job and job[STATE] == 'CLAIMED' and job[UNTIL] and job[UNTIL] > now and job[TOKEN] == token and job[KEEPER] == handle then
    local container, member = lease_of(job, id)
    gone[container], ends[container] = gone[container] or {}, ends[container] or {}
    table.insert(gone[container], member)
    job[UNTIL] = now + ttl
    local added = ends[container]
    added[#added + 1], added[#added + 2] = 0, select(2, lease_of(job, id))
    jobs[#jobs + 1], jobs[#jobs + 2] = id, closed(job, tag)
  else
    others[#others + 1], others[#others + 2] = id, token
  end
end
for container, members in pairs(gone) do send('ZREM', container, members) end
for container, members in pairs(ends) do send('ZADD', container, members) end
send('HSET', JOBS, jobs)
if jobs[1] then remind(now + ttl, nil) end
return cmsgpack.pack(others)
