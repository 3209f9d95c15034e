-- Prolong claims that are kept by a handle.
-- args: handle, ttl in µs, [uuid, token, uuid, token, …]
-- Answers the claims that are lost, as [uuid, token, uuid, token, …].

local lost = {}
local held = args[3]
for index = 1, #held, 2 do
  local id, token = held[index], held[index + 1]
  local job = load(id)
  local record = job and job.record
  local kept = job and record[KEEPER] == args[1]
  if not job or record[STATE] == 'T' or record[TOKEN] ~= token or kept and not revived(job) then
    lost[#lost + 1] = id
    lost[#lost + 1] = token
  elseif kept then
    record[STATE], record[LOCK_UNTIL] = 'C', now + args[2]
    store(job)
  end
end
return reply(lost)
