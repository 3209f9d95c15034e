-- The side records of a kind that is listed.
-- args: kind
-- Answers [now, [[key, until, value, tag], …]].

local found = {}
for _, field in ipairs(call('ZRANGEBYLEX', LISTED, '[' .. args[1] .. '\0', '(' .. args[1] .. '\1')) do
  local side, blob = side_of(field)
  if side then found[#found + 1] = {string.sub(field, #args[1] + 2), side.till or false, side.value, blob} end
end
return reply({now, found})
