-- What becomes of what is damaged. Behind board.lua.

local damage_made

function damage()
  if damage_made then return damage_made end

  -- Anew: to bind what lies so far down costs every script, and this is hardly ever called.
  local _, JOBS, POSTINGS, READY, NAMES, BUSY, LEASES, FINAL, DUE, _, TRASH, _, _, _, _, ENTITIES = unpack(KEYS)

  local NOTES, CLIP = 100, 1000

  local function note(container, id, reason, blob)
    notes = notes or {}
    if #notes < NOTES then
      notes[#notes + 1] = {container, string.sub(id, 1, CLIP), reason, string.sub(blob or '', 1, CLIP), WRITES}
    end
  end

  -- An entry of a hash that is none goes.
  local function drop(container, hash, id, blob)
    note(container, id, 'it can not be read', blob)
    if WRITES then redis.call('HDEL', hash, id) end
  end

  -- An entry of a hash as `reader` has it; nil where that has none.
  local function entry(container, hash, id, reader, blob)
    blob = blob or redis.call('HGET', hash, id)
    if not blob then return nil end
    local fine, found = pcall(reader, blob)
    if fine and found then return found end
    drop(container, hash, id, blob)
  end

  local function entity_in(blob)
    local entity = cmsgpack.unpack(blob)
    return entity[1] >= '' and entity[2] >= '' and entity[3] >= 0 and entity
  end

  local function entity_of(id, blob)
    return entry('entities', ENTITIES, id, entity_in, blob)
  end

  -- Put into the trash what can be read of a job whose record is damaged (without a blob: missing). Answers that job,
  -- also where this script may not write; nil where nothing can be read, which is dropped.
  local function set_aside(id, blob)
    local posting = redis.call('HGET', POSTINGS, id)
    if not (blob or posting) then return nil end
    local at = tonumber(redis.call('ZSCORE', READY, id) or redis.call('ZSCORE', BUSY, id) or 2 ^ 51)
    if not (at >= 0 and at < 5 * 2 ^ 50) then at = 2 ^ 51 end
    local record = {'damaged', math.floor(at / 2 ^ 50), math.floor(at % 2 ^ 50), false, 1, false, now, 'T', 0, 0, false,
                    false, false, now, false, 0}
    local fine, found = pcall(cmsgpack.unpack, blob or '')
    found = fine and type(found) == 'table' and found
    local fields = {'name', 'priority', 'sequence', 'key', 'version', 'max_attempts', 'created_on', 'state', 'attempts',
                    'token', 'who', 'keeper', 'lock_until', 'modified_on', 'error', 'retries'}
    local bad, kept = {}, posting
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
    elseif found and #bad < 14 then
      reason = 'its record is damaged: ' .. table.concat(bad, ', ')
    end
    note('jobs', id, reason, blob or posting)
    record[KEEPER], record[MODIFIED_ON], record[ERROR] = false, now, reason
    local job = {id = id, record = record, state = 'T', odd = true}
    if WRITES then
      for _, container in ipairs({READY, BUSY, LEASES, FINAL, DUE}) do redis.call('ZREM', container, id) end
      redis.call('ZREM', NAMES, named(id, record))
      unlock(job)
      if kept then
        record[TOKEN] = next_token(record)
        redis.call('HSET', JOBS, id, cmsgpack.pack(record))
        redis.call('ZADD', TRASH, now, buried(id, record))
        aside = aside or {}
        aside[#aside + 1] = job
        tell('TRASHED', job)
      else
        redis.call('HDEL', JOBS, id)
      end
    end
    return kept and job or nil
  end

  -- A member that does not stand for `job` as it is stored; nil: for none.
  local function stray(container, set, member, id, job)
    strays = strays + 1
    job = job or set_aside(id)
    if not (job and job.odd) then note(container, member, job and 'its job is elsewhere' or 'its job is missing') end
    if WRITES then redis.call('ZREM', set, member) end
  end

  damage_made = {note = note, drop = drop, entry = entry, entity_in = entity_in, entity_of = entity_of, set_aside = set_aside, stray = stray}
  return damage_made
end
