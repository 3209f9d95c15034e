-- Count the jobs in each state now, without reading any.
-- Takes nothing.
-- Returns [unclaimed, scheduled, claimed, trashed, outcomes].

local function all(container) return call('ZCARD', container) end
local function ended(clock) return call('ZLEXCOUNT', clock, '-', '(' .. digits(now + 1)) end

local due, lapsed, final, expired = ended(DUE), ended(LEASES), ended(FINAL), ended(EXPIRIES)
return cmsgpack.pack({
  all(READY) / 2 + due + lapsed - expired,
  all(DUE) - due,
  all(LEASES) - lapsed + all(FINAL) - final,
  all(TRASH) + final + expired,
  call('ZLEXCOUNT', LISTED, '[outcome\0', '(outcome\1'),
})
