-- Side records of a kind that is paged, the one stored last first.
-- args: kind, tag of the one behind which to begin (nil: none), how many
-- Answers [now, [[key, until, value, tag], …]]; of one that is damaged or gone, value is false.

local kind, found = args[1] .. '\0', {}
local last = '(' .. args[1] .. '\1'
if args[2] then
  local _, version = cmsgpack.unpack_limit(args[2], 1)
  last = '(' .. kind .. string.format('%016.0f', version)
end
for _, member in ipairs(call('ZREVRANGEBYLEX', LISTED, last, '[' .. kind, 'LIMIT', 0, args[3])) do
  local key = string.sub(member, #kind + 17)
  local side, blob = side_of(kind .. key)
  if not side then blob = cmsgpack.pack(tonumber(string.sub(member, #kind + 1, #kind + 16)) or 0) end
  found[#found + 1] = {key, side and side.till or false, side and side.value or false, blob}
end
return reply({now, found})
