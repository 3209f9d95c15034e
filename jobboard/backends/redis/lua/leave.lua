-- A waiter goes without having heard anything; or it was called, and takes no job of that name: another is to have its
-- call.
-- args: its id, or '' if it has left; names that it may have been called for, or nil: any; whether another is to have its
--   call
-- Returns whether it was still in the queue.

local id, names, hands_on = unpack(args, 1, 3)
local stood = forget(id)
if hands_on and not stood then
  for _, name in ipairs(names or {}) do
    local member = call('ZRANGEBYLEX', READY, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, 1)[1]
    if member then
      local version = string.match(string.sub(member, #name + 2), '^%Z*%z(%d+)', 22)
      wake(name, tonumber(version))
    end
  end
  if not names then foretell(0) end
end
return cmsgpack.pack(stood)
