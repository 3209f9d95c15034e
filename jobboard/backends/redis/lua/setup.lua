-- Mark a board with its layout, unless it has one.
-- args: whether to create it, layout, the oldest layout whose clients can read it
-- Returns [layout, oldest layout], or [] where there is no board.

local function stored() return call('HMGET', META, 'layout', 'min_reader') end

local found = stored()
if not (tonumber(found[1] or '') and tonumber(found[2] or '')) and (found[1] or args[1]) then
  call('HSET', META, 'layout', args[2], 'min_reader', args[3])
  found = stored()
end
return cmsgpack.pack(found[1] and {tonumber(found[1]), tonumber(found[2])} or {})
