-- Store a listed side record, whatever was there; or let go of all of a kind whose value is a handle's.
-- args: kind .. '\0' .. key, value, ttl in µs; or kind, nil, nil, handle
-- Answers true.

local kind, value, ttl, handle = unpack(args, 1, 4)
if value then
  put(kind, value, ttl and now + ttl, true)
  return reply(true)
end
for _, field in ipairs(call('ZRANGEBYLEX', LISTED, '[' .. kind .. '\0', '(' .. kind .. '\1')) do
  local side = side_of(field)
  local fine, told = pcall(cjson.decode, side and side.value or 'null')
  if not side or fine and type(told) == 'table' and told[1] == handle then put(field, nil, nil, true) end
end
return reply(true)
