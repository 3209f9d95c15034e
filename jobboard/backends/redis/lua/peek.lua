-- Whether a take would find something.
-- args: readable version, names
-- Answers [any, µs to the next event].

return reply({claimable(args[2], args[1]), next_event()})
