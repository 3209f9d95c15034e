-- How scripts read and write. Before board.lua.
-- Writes of one kind to a container go together, as what a batch costs is its commands most of all, here and in the
-- append-only file. They wait until anything else is asked of that container, so that no script reads, or writes over,
-- what is still to be written; or until all are due: before the answer of a call is stored, and as the script ends.
-- A command on several containers is for those alone for which nothing waits.

local KEYS, send = KEYS, redis.call
local put_off = {}

local function flush(container)
  local words = put_off[container]
  put_off[container] = nil
  send(unpack(words))
end

local function call(verb, container, ...)
  if put_off[container] then flush(container) end
  return send(verb, container, ...)
end

-- A write whose answer nobody asks for: of a member; of a score and a member, or a field and its value.
local function write(verb, container, one, two)
  local words = put_off[container]
  if words and words[1] == verb and #words < WORDS then
    local last = #words
    words[last + 1], words[last + 2] = one, two
  else
    if words then flush(container) end
    put_off[container] = {verb, container, one, two}
  end
end

-- Places before records, as keys.py has them: what a server refuses half-way is no job without its place.
local function write_all()
  for index = #KEYS, 1, -1 do
    if put_off[KEYS[index]] then flush(KEYS[index]) end
  end
end

