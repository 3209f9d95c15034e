-- Keys whose windows outlive their jobs, by when they end.
-- args: from when on, how many of that very instant were told of already, how many side records to look at
-- Answers [now, [[key, until, value, tag], …], [when, how many] to go on with (nil: that was all)].

local since, told, most = unpack(args, 1, 3)
local ends, found = call('ZRANGEBYSCORE', ENDS, exact(since), '+inf', 'WITHSCORES', 'LIMIT', told, most), {}
local last, same = since, told
for index = 1, #ends, 2 do
  local field, till = ends[index], tonumber(ends[index + 1])
  last, same = till, till == last and same + 1 or 1
  if string.sub(field, 1, 4) == 'key\0' then
    local side, blob = side_of(field)
    if side then found[#found + 1] = {string.sub(field, 5), side.till or false, side.value, blob} end
  end
end
return reply({now, found, #ends == 2 * most and {last, same} or nil})
