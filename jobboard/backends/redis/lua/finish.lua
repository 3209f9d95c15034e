-- Consume jobs, all or none: if no pause or limit exists, each claim lives and has the token, and no job has a key.
-- Takes:
--   field, number, answer: the field of the slot's answer, the number of the call, and its answer
--   handle: of the caller
--   claims: [uuid, token, …]
-- Returns whether the jobs are consumed.

local field, number, answer, handle, claims = unpack(args, 1, 5)
local gate, slot = unpack(call('HMGET', SIDES, GATE, field))
if gate or not is_next(slot, number) then return cmsgpack.pack(false) end

local ids, live, leases, events = {}, {}, {}, {}
for index = 1, #claims, 2 do ids[#ids + 1] = claims[index] end
local blobs = call('HMGET', JOBS, unpack(ids))
for index, id in ipairs(ids) do
  local job = opened(blobs[index])
  if not (job and job[STATE] == 'CLAIMED' and job[UNTIL] and job[UNTIL] > now and job[TOKEN] == claims[2 * index])
     or job[KEY] then
    return cmsgpack.pack(false)
  end
  local container, member = lease_of(job, id)
  leases[container] = leases[container] or {}
  table.insert(leases[container], member)
  live[index], events[index] = job[TAIL], {'CONSUMED', id, blobs[index]}
end
tell(handle, events)
for container, members in pairs(leases) do send('ZREM', container, members) end
send('ZREM', LIVE, live)
send('HDEL', JOBS, ids)
send('HDEL', POSTINGS, ids)
put(field, answer, now + HOUR, numbers(1))
return cmsgpack.pack(true)
