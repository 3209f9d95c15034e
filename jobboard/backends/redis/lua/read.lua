-- Jobs and side records as they are stored, and the time.
-- args: uuids, [kind .. '\0' .. key, …]
-- Answers [now, [[uuid, record, posting], or false where it is absent], [[until, value, tag], or false]].

local jobs, sides = {}, {}
for index, id in ipairs(args[1]) do
  local job = as_job(id, call('HGET', JOBS, id))
  jobs[index] = job and shown(job) or false
end
for index, field in ipairs(args[2]) do
  local side, blob = side_of(field, string.sub(field, 1, 6) == 'scope\0' and limits().scope_in or nil)
  sides[index] = blob and {side and side.till or false, side and side.value or false, blob} or false
end
return reply({now, jobs, sides})
