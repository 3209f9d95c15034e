-- How many jobs are in each state, without looking at any.
-- args: none
-- Answers [unclaimed, scheduled, claimed, trashed].

local function overdue(clock)
  return redis.call('ZCOUNT', clock, '-inf', string.format('%.0f', now))
end

local due, lapsed, final = overdue(DUE), overdue(LEASES), overdue(FINAL)
return reply({
  redis.call('ZCARD', READY) + due + lapsed,
  redis.call('ZCARD', DUE) - due,
  redis.call('ZCARD', LEASES) - lapsed + redis.call('ZCARD', FINAL) - final,
  redis.call('ZCARD', TRASH) + final,
})
