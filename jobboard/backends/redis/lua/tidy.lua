-- Drop what nobody will ask for again: side records whose time has gone by, scopes that count nothing, and waiters that
-- died.
-- args: none
-- Answers whether there may be more.

local ends = call('ZRANGEBYSCORE', ENDS, '-inf', exact(now), 'LIMIT', 0, DROPPED)
for _, field in ipairs(ends) do
  local blob = call('HGET', SIDES, field)
  local fine, side = pcall(side_in, blob or '')
  side = fine and side
  local scope = side and not side.till and string.match(field, '^scope%z(.*)$')
  local again = scope and entries().again(scope, side.value)
  if side and side.till and side.till > now then
    -- It has been written again since.
    call('ZADD', ENDS, exact(side.till), field)
  elseif again then
    call('ZADD', ENDS, exact(again), field)
  else
    call('ZREM', ENDS, field)
    local known, member = pcall(listed_as, field, blob or '')
    call('ZREM', LISTED, known and member or field)
    if not side or side.till or scope then call('HDEL', SIDES, field) end
  end
end
local bells = call('HGETALL', BELLS)
for index = 1, #bells, 2 do
  local fine, bell = pcall(waiters().bell_in, bells[index + 1])
  if not (fine and bell and bell[1] >= now - HOUR) then waiters().forget(bells[index]) end
end
return reply(#ends == DROPPED)
