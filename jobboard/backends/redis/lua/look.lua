-- What can be claimed, and what must be settled first.
-- args: how many, names, readable version, names and groups to leave out: [name, …], [[name, group], …]
-- Answers [now, [ready], [overdue], µs to the next event, the gate as in read.lua]; a job is [uuid, record, posting].

local without, lanes = set_of(args[4]), {}
for _, lane in ipairs(args[5]) do lanes[lane[1] .. '\n' .. lane[2]] = true end

local function left_out(record)
  return without[record[NAME]] or record[GROUP] and lanes[record[NAME] .. '\n' .. record[GROUP]]
end

local found = ready(args[2], args[1], args[3], (args[4][1] or args[5][1]) and left_out)
local gate, blob = side_of(GATE)
return reply({
  now, all_shown(found), all_shown(overdue(OVERDUE)), next_event(),
  blob and {gate and gate.till or false, gate and gate.value or false, blob} or false,
})
