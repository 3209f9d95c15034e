-- What is damaged: bytes that are no entry, and members without their counterpart. Behind board.lua.
-- No script ends because of one, unless it is the gate, and a claim is asked for: see rules() in board.lua. It is set
-- aside, by those that may write, and passed over by the others; the board's log has what was there. What reads an entry
-- compares its parts, which raises where one is of another kind, and is called by pcall alone.

local damage_made

function damage()
  if damage_made then return damage_made end

  local MOST_NOTES, CLIP = 100, 1000

  local function note(container, id, reason, blob)
    notes = notes or {}
    if #notes < MOST_NOTES then
      local name = string.match(container, '[^:]*$')
      notes[#notes + 1] = {name, string.sub(id, 1, CLIP), reason, string.sub(blob or '', 1, CLIP), WRITES}
    end
  end

  -- An entry of a hash that is none goes.
  local function drop(hash, id, blob)
    note(hash, id, 'it can not be read', blob)
    if WRITES then call('HDEL', hash, id) end
  end

  -- Put into the trash what can be read of a job whose record is damaged (without a blob: missing). Answers that job,
  -- also where this script may not write; nil where nothing can be read, which is dropped.
  local function set_aside(id, blob)
    local posting = call('HGET', POSTINGS, id)
    if not (blob or posting) then return nil end
    local at = tonumber(call('ZSCORE', READY, id) or call('ZSCORE', BUSY, id) or -1)
    if not (at >= 0 and at < RANKS * SEQUENCES) then at = (RANKS - 1) / 2 * SEQUENCES end
    local record = {'damaged', math.floor(at / SEQUENCES), math.floor(at % SEQUENCES), false, 1, 'T', 0, false, 0, false,
                    false, false, now, now, {}, 0, false, false, 0}
    local fine, found = pcall(cmsgpack.unpack, blob or '')
    found = fine and type(found) == 'table' and found
    local bad, kept, fields = {}, posting, FIELDS
    for field, what in ipairs(found and fields or {}) do
      local default, value = record[field], found[field]
      if field ~= STATE and field ~= LOCK_UNTIL then
        record[field] = value
        local good, yes = pcall(sound, nil, record)
        if not (good and yes) then
          record[field] = default
          bad[#bad + 1] = type(value) == 'number' and what .. ' ' .. tostring(value) or what
        end
        kept = kept or field == NAME and record[field] == value
      end
    end
    local reason = 'its record can not be read'
    if not blob then
      reason = 'its record is missing'
    elseif found and #bad == 0 then
      reason = 'its record does not fit together'
    elseif found and #bad < #fields - 2 then
      reason = 'its record is damaged: ' .. table.concat(bad, ', ')
    end
    note(JOBS, id, reason, blob or posting)
    bury(record, now)
    failed(record, now, nil, reason)
    local job = {id = id, record = record, state = 'T', odd = blob or true}
    if WRITES then
      for _, container in ipairs({READY, BUSY, LEASES, FINAL, DUE}) do call('ZREM', container, id) end
      call('ZREM', NAMES, named(id, record))
      if laned() then lanes().take_out({id = id, record = record}) end
      unlock(job)
      if kept then
        record[TOKEN], job.state = next_token(record), nil
        store(job)
        aside = aside or {}
        aside[#aside + 1] = job
      else
        call('HDEL', JOBS, id)
      end
    end
    return kept and job or nil
  end

  -- A member that does not stand for `job` as it is stored; nil: for none.
  local function stray(set, member, id, job)
    strays = strays + 1
    job = job or set_aside(id)
    if not (job and job.odd) then note(set, member, job and 'its job is elsewhere' or 'its job is missing') end
    if WRITES then call('ZREM', set, member) end
  end

  damage_made = {note = note, drop = drop, set_aside = set_aside, stray = stray}
  return damage_made
end
