-- How a draft becomes a job: for insert and commit. Behind board.lua. `more`: how many drafts follow.
-- A draft: [uuid, name, priority, key, version, max_attempts, delay, due, group, key for, whether it replaces, arrival,
-- whether it was trashed]; an arrival, of a job from another board: [who, attempts, retries, errors, created on, until when held, or
-- when trashed, the least token]

local function post(draft, posting, quiet, more)
  local id, name, priority, key, version, max_attempts, delay, due, group, key_for, _, came, trashed = unpack(draft, 1, 13)
  local till = delay and now + delay or due
  if till and till <= now then till = nil end
  local record = {
    name, priority, next_sequence(more), key or false, version, till and 'S' or 'U', 0, max_attempts or false, 0, false,
    false, till or false, now, now, {}, 0, group or false, key_for and now + key_for or false, 0,
  }
  local job = {id = id, record = record}
  if came then
    record[STATE], record[TOKEN] = trashed and 'T' or 'C', math.max(came[7], now)
    record[WHO], record[ATTEMPTS], record[RETRIES], record[ERRORS], record[CREATED_ON] = unpack(came, 1, 5)
    record[trashed and MODIFIED_ON or LOCK_UNTIL] = came[6]
    put('purged\0' .. id)
  end
  write('HSET', POSTINGS, id, posting)
  if key and not trashed then lock(job, record[SEQUENCE]) end
  store(job, quiet)
  if not (trashed or quiet) then tell('POSTED', job) end
  return job
end
