-- For the scripts that give a job its key. Behind board.lua.

-- Who holds this key: a live job, or nil. One that has lapsed for good lets go of it.
local function holder_of(key)
  local id = redis.call('HGET', KEYED, key)
  local job = id and load(id)
  if job and job.record[STATE] == 'T' then
    store(job)
    return nil
  end
  if id and not (job and job.record[KEY] == key) then
    damage().note('keyed', key, 'its job does not have this key', id)
    return nil
  end
  return job
end
