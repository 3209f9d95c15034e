-- Prolong claims that are kept by a handle.
-- args: handle, ttl in µs, [uuid, token, uuid, token, …]
-- Answers the claims that are lost, as [[uuid, token], …]; and those that it keeps no longer, as [[uuid, token, for how
-- many µs it stands, false where another handle keeps it], …].

local lost, unkept = {}, {}
local held = args[3]
for index = 1, #held, 2 do
  local id, token = held[index], held[index + 1]
  local job = load(id)
  local record = job and job.record
  local kept = job and record[KEEPER] == args[1]
  if not job or record[STATE] == 'T' or record[TOKEN] ~= token or kept and not revived(job) then
    lost[#lost + 1] = {id, token}
  elseif kept then
    record[STATE], record[LOCK_UNTIL] = 'C', now + args[2]
    store(job)
  else
    unkept[#unkept + 1] = {id, token, record[STATE] ~= 'C' and 0 or not record[KEEPER] and record[LOCK_UNTIL] - now}
  end
end
return reply({lost, unkept})
