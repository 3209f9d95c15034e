-- How many jobs are in each state, without looking at any.
-- args: none
-- Answers [unclaimed, scheduled, claimed, trashed].

local function overdue(clock) return call('ZCOUNT', clock, '-inf', exact(now)) end
local function size(container) return call('ZCARD', container) end

local due, lapsed, final = overdue(DUE), overdue(LEASES), overdue(FINAL)
return reply({
  size(READY) + due + lapsed, size(DUE) - due, size(LEASES) - lapsed + size(FINAL) - final, size(TRASH) + final,
})
