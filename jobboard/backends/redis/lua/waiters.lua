-- Who waits for jobs, and how what has become claimable reaches them. Behind board.lua.
-- Each sleeps on a channel of its own, and stands in WAITERS under what it waits for:
-- 'a' any job, 'n' .. name a job of that name, 'p' only looks; then a zero, its place in the queue, and its id.
-- BELLS has what it is to be given: see bide.lua.

local waiters_made

function waiters()
  if waiters_made then return waiters_made end

  local _, _, _, _, _, _, _, _, _, _, _, _, ANSWERS, WAITERS, BELLS = unpack(KEYS)

  local BELL = {CAME = 1, TICKET = 2, MEMBERS = 3, READABLE = 4, HANDLE = 5, WHO = 6, LEASE = 7, KEEPER = 8}

  local function bell_in(blob)
    local bell = cmsgpack.unpack(blob)
    for _, member in ipairs(bell[BELL.MEMBERS]) do
      if member <= '' then return nil end
    end
    return bell[BELL.CAME] >= 0 and bell[BELL.TICKET] >= 0 and #bell[BELL.MEMBERS] > 0 and bell[BELL.READABLE] >= 0
      and bell[BELL.HANDLE] >= ''
      and (not bell[BELL.WHO] or bell[BELL.WHO] > '' and bell[BELL.LEASE] > 0 and (bell[BELL.KEEPER] or '') >= '')
      and bell
  end

  local function bell_of(id, blob)
    return damage().entry('bells', BELLS, id, bell_in, blob)
  end

  local function forget(id, bell)
    bell = bell or bell_of(id)
    if not bell then return nil end
    redis.call('ZREM', WAITERS, unpack(bell[BELL.MEMBERS]))
    redis.call('HDEL', BELLS, id)
    return bell
  end

  local function waiting(kind)
    return redis.call('ZRANGEBYLEX', WAITERS, '[' .. kind .. '\0', '(' .. kind .. '\1', 'LIMIT', 0, 100)
  end

  local function channel(id)
    return WAITERS .. ':' .. id
  end

  -- Claim a job for one of these waiters, the first that hears of it. It need not ask for it: what it is told, or asks
  -- for later where its connection broke meanwhile, is its claim. Answers whether one did, and whether any has gone.
  local function hand(job, members)
    local id, gone = job.id, false
    for _, member in ipairs(members) do
      local waiter = string.sub(member, -32)
      local bell = bell_of(waiter)
      if not (bell and bell[BELL.WHO]) then
        gone = true
        redis.call('ZREM', WAITERS, member)
      elseif job.record[VERSION] <= bell[BELL.READABLE] then
        forget(waiter, bell)
        claimed(job.record, bell[BELL.WHO], bell[BELL.LEASE], bell[BELL.KEEPER])
        local heard = redis.pcall(PUBLISH, channel(waiter), cmsgpack.pack({bell[BELL.TICKET], shown(job)}))
        if type(heard) == 'number' and heard > 0 then
          local given = cmsgpack.pack({bell[BELL.TICKET], now, {id, job.record[TOKEN]}, 1})
          redis.call('HSET', ANSWERS, 'bell:' .. waiter, given)
          store(job)
          tell('CLAIMED', job, bell[BELL.HANDLE])
          return true
        end
        job, gone = load(id), true
      end
    end
    return false, gone
  end

  -- Who waits gets what has come, in the order in which it is served; what is left over is told to all who only look.
  local function serve()
    local left = false
    table.sort(came, by_place)
    for _, job in ipairs(came) do
      job = load(job.id)
      if job and job.record[STATE] == 'U' then
        local given, gone
        repeat
          local members = waiting('n' .. job.record[NAME])
          for _, member in ipairs(waiting('a')) do members[#members + 1] = member end
          given, gone = hand(load(job.id), members)
        until given or not gone
        left = not given or left
      end
    end
    local told
    repeat
      told = false
      for _, member in ipairs(left and waiting('p') or {}) do
        local waiter = string.sub(member, -32)
        local bell = forget(waiter)
        redis.call('ZREM', WAITERS, member)
        told = true
        if bell then redis.pcall(PUBLISH, channel(waiter), cmsgpack.pack({bell[BELL.TICKET], false})) end
      end
    until not told
  end

  waiters_made = {BELL = BELL, bell_in = bell_in, bell_of = bell_of, forget = forget, serve = serve}
  return waiters_made
end
