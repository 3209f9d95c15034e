-- Jobs as they are stored, and the time to settle them by.
-- args: uuids
-- Answers [now, [one for each: [uuid, record, posting], true if it was purged, false if it is absent]].

local found = {}
for index, id in ipairs(args) do
  local job = as_job(id, redis.call('HGET', JOBS, id))
  found[index] = job and shown(job) or redis.call('ZSCORE', PURGED, id) ~= false
end
return reply({now, found})
