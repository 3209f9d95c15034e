-- What can be claimed, and what must be settled first.
-- args: how many, names, readable version
-- Answers [now, [ready], [overdue], µs to the next event, the gate as in read.lua]; a job is [uuid, record, posting].

local found = ready(args[2], args[1], args[3])
local gate, blob = side_of(GATE)
return reply({
  now, all_shown(found), all_shown(overdue(OVERDUE)), next_event(),
  blob and {gate and gate.till or false, gate and gate.value or false, blob} or false,
})
