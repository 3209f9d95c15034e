-- The next jobs in the trash, the last trashed first; those that no sweep has met lie among the claims yet.
-- args: when the last one was trashed and its sequence (or nil, nil), how many
-- Answers [[uuid, record, posting], …].

local at, sequence, limit = args[1], args[2], args[3]
local found = {}

-- Each as its entry has it, whatever its record says: by that the pages follow each other.
local function newest(container, most, open)
  local offset, count, last = 0, 0, nil
  repeat
    local entries = redis.call('ZREVRANGEBYSCORE', container, most, '-inf', 'WITHSCORES', 'LIMIT', offset, limit)
    for index = 1, #entries, 2 do
      -- Whole groups of one instant: their order is that of their sequences.
      if count >= limit and entries[index + 1] ~= last then return end
      last = entries[index + 1]
      local id = open(entries[index])
      local job = load(id)
      local score = tonumber(last)
      if job and job.odd then job.record[SEQUENCE] = tonumber(string.sub(entries[index], 1, 16)) or 0 end
      local lies = job and job.record[STATE] == 'T' and (container == FINAL or buried(id, job.record) == entries[index])
      if not (lies and score >= 0 and score < STORABLE) then
        damage().stray(container == TRASH and 'trash' or 'final', container, entries[index], id, job)
      else
        local record = job.record
        record[MODIFIED_ON] = score
        if not at or score < at or record[SEQUENCE] < sequence then
          found[#found + 1] = job
          count = count + 1
        end
      end
    end
    offset = offset + limit
  until #entries < 2 * limit
end

newest(TRASH, at and string.format('%.0f', at) or '+inf', function(member) return string.sub(member, 17) end)
newest(FINAL, string.format('%.0f', at and math.min(at, now) or now), function(member) return member end)
table.sort(found, function(one, two)
  local a, b = one.record, two.record
  if a[MODIFIED_ON] ~= b[MODIFIED_ON] then return a[MODIFIED_ON] > b[MODIFIED_ON] end
  return a[SEQUENCE] > b[SEQUENCE]
end)
local page = {}
for index = 1, math.min(limit, #found) do page[index] = shown(found[index]) end
return reply(page)
