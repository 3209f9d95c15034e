-- The next jobs in the trash, the last trashed first; those that no sweep has met lie among the claims yet.
-- args: when the last one was trashed and its sequence (or nil, nil), how many
-- Answers [now, [[uuid, record, posting], …]].

local at, sequence, limit = args[1], args[2], args[3]
local found = {}

-- Each as its entry has it, whatever its record says: by that the pages follow each other.
local function newest(container, most, skip)
  local offset, count, last = 0, 0, nil
  repeat
    local entries = call('ZREVRANGEBYSCORE', container, most, '-inf', 'WITHSCORES', 'LIMIT', offset, limit)
    for index = 1, #entries, 2 do
      -- Whole groups of one instant: their order is that of their sequences.
      if count >= limit and entries[index + 1] ~= last then return end
      last = entries[index + 1]
      local id, score = string.sub(entries[index], skip), tonumber(last)
      local job = load(id)
      local record = job and job.record
      if job and job.odd then
        record[SEQUENCE], record[MODIFIED_ON] = tonumber(string.sub(entries[index], 1, 16)) or 0, score
      end
      local lies = job and record[STATE] == 'T' and (container == FINAL or buried(id, record) == entries[index])
      if not (lies and score == record[MODIFIED_ON] and score >= 0 and score < STORABLE) then
        damage().stray(container, entries[index], id, job)
      elseif not at or score < at or record[SEQUENCE] < sequence then
        found[#found + 1] = job
        count = count + 1
      end
    end
    offset = offset + limit
  until #entries < 2 * limit
end

newest(TRASH, at and exact(at) or '+inf', 17)
newest(FINAL, exact(at and math.min(at, now) or now), 1)
table.sort(found, function(one, two)
  local a, b = one.record, two.record
  if a[MODIFIED_ON] ~= b[MODIFIED_ON] then return a[MODIFIED_ON] > b[MODIFIED_ON] end
  return a[SEQUENCE] > b[SEQUENCE]
end)
for index = #found, limit + 1, -1 do found[index] = nil end
return reply({now, all_shown(found)})
