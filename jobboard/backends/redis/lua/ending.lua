-- What becomes of a job that nobody holds: for finish and operate. Behind board.lua.

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
