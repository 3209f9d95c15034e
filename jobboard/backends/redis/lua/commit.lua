-- Store what the engine has decided, all or nothing, if every job and side record is as it was read.
-- args: handle, changes [[uuid, tag (nil: it is new), record, or draft of what is new (nil: nothing is left), event,
--   whether its posting is another], …], marks [[kind .. '\0' .. key, tag (nil: nothing was there), value (nil: nothing
--   is left), ttl in µs, whether its kind is listed, until when it counts, whether it wakes who waits], …], checks [[kind .. '\0' .. key, tag (nil:
--   nothing is there)], …]
-- ARGV[2…]: postings, of jobs that are new or get another
-- Answers [[uuids of jobs that are not as they were read], whether all is stored, [jobs], [[until, value, tag], …]]

local changes, marks, stale, fits = args[2], args[3], {}, true
for _, change in ipairs(changes) do
  if call('HGET', JOBS, change[1]) ~= (change[2] or false) then stale[#stale + 1] = change[1] end
end
for _, mark in ipairs(marks) do
  fits = fits and call('HGET', SIDES, mark[1]) == (mark[2] or false)
end
for _, check in ipairs(args[4]) do
  fits = fits and call('HGET', SIDES, check[1]) == (check[2] or false)
end
if stale[1] or not fits then return reply({stale, false, {}, {}}) end

local jobs, sides, posted = {}, {}, 1
for _, change in ipairs(changes) do
  local id, tag, record, event, other = unpack(change, 1, 5)
  local job = tag and as_job(id, tag)
  if record and not tag then
    posted = posted + 1
    job = post(record, ARGV[posted], true)
  elseif record then
    record[STAMP] = job.record[STAMP]
    if place(record) ~= place(job.record) then uproot(job) end
    if other then
      posted = posted + 1
      write('HSET', POSTINGS, id, ARGV[posted])
    end
    job.record = record
    store(job, true)
  else
    if event then tell(event, job) end
    drop(job)
    job = nil
  end
  if job and event then tell(event, job) end
  jobs[#jobs + 1] = job
end
for _, mark in ipairs(marks) do
  local field, _, value, ttl, listed, till, wakes = unpack(mark, 1, 7)
  local before = field == GATE and rules()
  sides[#sides + 1] = put(field, value, till or ttl and now + ttl, listed)
  if field == GATE then
    rules_now = nil
    lanes().ruled(before, rules())
  end
  if wakes then waiters().rouse() end
  -- With a job it is only put off.
  if not changes[1] and string.sub(field, 1, 9) == 'schedule\0' then redis.pcall(PUBLISH, META .. ':schedules', '') end
end
return reply({stale, true, all_shown(jobs), sides})
