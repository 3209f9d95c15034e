-- Take a waiter out of the queue. If it was called and takes no job, hand its call on to another waiter.
-- Takes:
--   id: the waiter, or '' if it has left the queue
--   names: of the jobs that it may have been called for, nil for any
--   hands_on: whether to hand its call on
-- Returns whether the waiter was still in the queue, so that it was not called.

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
