-- Store the layout of a board, unless it has a layout that is not to be upgraded.
-- Takes:
--   whether to create the board
--   the layout, the oldest layout whose clients can read it, and the version of the library
--   whether to upgrade the board, unless it has a newer layout
-- Returns the stored [layout, oldest layout], or [] if there is no board.

local function stored() return call('HMGET', META, 'layout', 'min_reader') end
local function is_number(text) return text and string.match(text, '^%d+$') end

local found = stored()
local is_sound = is_number(found[1]) and is_number(found[2])
if is_sound and args[5] and tonumber(found[1]) <= args[2] or not is_sound and (found[1] or args[1]) then
  call('HSET', META, 'layout', args[2], 'min_reader', args[3], 'library', args[4])
  found = stored()
end
return cmsgpack.pack(found[1] and {tonumber(found[1]), tonumber(found[2])} or {})
