-- A waiter does not follow its call: if the job is still there, another one gets it.
-- args: readable version, what the job may be named (nil: anything)
-- Answers true.

if args[2] then
  for _, name in ipairs(args[2]) do
    if #ready({name}, 1, args[1]) > 0 then call(name) end
  end
elseif #ready(nil, 1, args[1]) > 0 then
  call(nil)
end
return reply(true)
