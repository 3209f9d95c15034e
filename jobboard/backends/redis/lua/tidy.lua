-- Drop expired side records, and waiters that died in the queue.
-- Takes nothing.
-- Returns whether there may be more expired side records.

local fields = call('ZRANGEBYSCORE', ENDS, '-inf', digits(now), 'LIMIT', 0, DROPPED)
for _, field in ipairs(fields) do
  local blob = call('HGET', SIDES, field)
  local till = blob and tonumber(string.sub(blob, 19, 36))
  if till and till > now then
    -- The record was written again since.
    call('ZADD', ENDS, digits(till), field)
  else
    local listed = blob and listed_as(field, tonumber(string.sub(blob, 1, 18)) or 0)
    if listed then call('ZREM', LISTED, listed) end
    if till ~= 0 then call('HDEL', SIDES, field) end
    call('ZREM', ENDS, field)
  end
end
for _, member in ipairs(call('ZRANGE', WAITERS, 0, WORDS)) do
  if now - (tonumber(string.sub(member, -68, -51)) or 0) > HOUR then
    call('ZREM', WAITERS, member)
    call('HDEL', BELLS, string.sub(member, -32))
  end
end
return cmsgpack.pack(#fields == DROPPED)
