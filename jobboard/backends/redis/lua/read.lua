-- Read jobs by their uuids, and side records by their fields.
-- Takes uuids, fields.
-- Returns [now, [record or false, …], [posting or false, …], [side record or false, …]].

local function all(container, keys) return keys[1] and call('HMGET', container, unpack(keys)) or {} end

return cmsgpack.pack({now, all(JOBS, args[1]), all(POSTINGS, args[1]), all(SIDES, args[2])})
