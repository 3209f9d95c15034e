-- Claim the first jobs in order, after bringing back what has lapsed or come due.
-- args: slot, call, try, who, limit, lease in µs, keeper, readable version, names
-- Answers [again, replayed, µs that they stand, µs to the next event, [trashed], [taken]]; a job is [uuid, record,
-- posting]. `again`: the sweep has met its limit and nothing could be taken; call once more with the same nonce.

local taken, trashed, again, stands = {}, {}, false, args[6]

local function sweep()
  local left = SWEEP
  for _, clock in ipairs({DUE, LEASES, FINAL}) do
    local first = redis.call('ZRANGE', clock, 0, 0, 'WITHSCORES')[2]
    if first and tonumber(first) <= now and left > 0 then
      local ids = redis.call('ZRANGEBYSCORE', clock, '-inf', string.format('%.0f', now), 'LIMIT', 0, left)
      left = left - #ids
      for _, id in ipairs(ids) do
        local job = load(id)
        if not job or job.clock ~= clock then
          damage().stray(clock == DUE and 'due' or clock == LEASES and 'leases' or 'final', clock, id, id, job)
        else
          store(job)
          if job.state == 'T' then trashed[#trashed + 1] = shown(job) end
        end
      end
    end
  end
  return left == 0
end

local stored = answered('table')
if stored then
  for index = 1, #stored, 2 do
    local job = load(stored[index])
    if job and job.record[STATE] == 'C' and job.record[TOKEN] == stored[index + 1] then
      stands = math.min(stands, job.record[LOCK_UNTIL] - now)
      taken[#taken + 1] = shown(job)
    end
  end
else
  local full = sweep()
  local done = {}
  for _, job in ipairs(ready(args[9], args[5], args[8])) do
    claim(job, args[4], args[6], args[7])
    taken[#taken + 1] = shown(job)
    done[#done + 1] = job.id
    done[#done + 1] = job.record[TOKEN]
  end
  again = (full or strays >= MOST) and #taken == 0
  if not again and (#taken > 0 or repeated()) then answer(done) end
end
for _, job in ipairs(aside or {}) do trashed[#trashed + 1] = shown(job) end
return reply({again, stored and true or false, stands, #taken == 0 and next_event(), trashed, taken})
