-- Register or renew an entity.
-- args: handle, kind, name, metadata, ttl in µs
-- Answers true.

redis.call('HSET', ENTITIES, args[2] .. '\0' .. args[3], cmsgpack.pack({args[1], args[4], now + args[5]}))
return reply(true)
