-- Jobs as they are stored, and the time to settle them by.
-- args: uuids
-- Answers [now, [one for each: [uuid, record, posting], true if it was purged, false if it is absent]].

local found = {}
for index, id in ipairs(args) do
  local blob = redis.call('HGET', JOBS, id)
  local job = as_job(id, blob)
  found[index] = job and shown(job) or blob and true or redis.call('ZSCORE', PURGED, id) ~= false
end
return reply({now, found})
