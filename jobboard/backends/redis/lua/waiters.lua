-- Who waits for jobs, and how what has become claimable reaches them. Behind board.lua.
-- Each sleeps on a channel of its own, and stands in WAITERS under what it waits for:
-- 'a' any job, 'n' .. name a job of that name, 'p' only looks; then a zero, its place in the queue, and its id.
-- BELLS has what it is to be given: see bide.lua.

local waiters_made

function waiters()
  if waiters_made then return waiters_made end

  local CAME, TICKET, MEMBERS, READABLE, HANDLE, WHOM, LEASE, KEPT_BY = 1, 2, 3, 4, 5, 6, 7, 8

  local function bell_in(blob)
    local bell = cmsgpack.unpack(blob)
    for _, member in ipairs(bell[MEMBERS]) do
      if member <= '' then return nil end
    end
    return bell[CAME] >= 0 and bell[TICKET] >= 0 and bell[MEMBERS][1] and bell[READABLE] >= 0 and bell[HANDLE] >= ''
      and (not bell[WHOM] or bell[WHOM] > '' and bell[LEASE] > 0 and (bell[KEPT_BY] or '') >= '')
      and bell
  end

  local function bell_of(id)
    local blob = call('HGET', BELLS, id)
    if not blob then return nil end
    local fine, bell = pcall(bell_in, blob)
    return fine and bell or damage().drop(BELLS, id, blob)
  end

  -- Take a waiter out of the queue; its bell, nil where it has none.
  local function forget(id, bell)
    bell = bell or bell_of(id)
    if not bell then return nil end
    call('ZREM', WAITERS, unpack(bell[MEMBERS]))
    call('HDEL', BELLS, id)
    return bell
  end

  local function waiting(kind)
    return call('ZRANGEBYLEX', WAITERS, '[' .. kind .. '\0', '(' .. kind .. '\1', 'LIMIT', 0, 100)
  end

  local function ring(id, bell, job)
    local heard = redis.pcall(PUBLISH, WAITERS .. ':' .. id, cmsgpack.pack({bell[TICKET], job}))
    return type(heard) == 'number' and heard > 0
  end

  -- Claim a job for one of these waiters, the first that hears of it. It need not ask for it: what it is told, or asks
  -- for later where its connection broke meanwhile, is its claim. Answers whether one did, and whether any has gone.
  local function hand(job, members)
    local id, gone = job.id, false
    for _, member in ipairs(members) do
      local waiter = string.sub(member, -32)
      local bell = bell_of(waiter)
      if not (bell and bell[WHOM]) then
        gone = true
        call('ZREM', WAITERS, member)
      elseif job.record[VERSION] <= bell[READABLE] then
        forget(waiter, bell)
        claimed(job, bell[WHOM], bell[LEASE], bell[KEPT_BY])
        if ring(waiter, bell, shown(job)) then
          answer({done('ok', id, job.record[TOKEN])}, 'bell:' .. waiter, bell[TICKET], 1)
          store(job)
          if limited() then limits().enter(job) end
          tell('CLAIMED', job, bell[HANDLE])
          return true
        end
        job, gone = load(id), true
      end
    end
    return false, gone
  end

  -- Have all who wait look for themselves.
  local function rouse()
    for _, member in ipairs(call('ZRANGE', WAITERS, 0, -1)) do
      local waiter = string.sub(member, -32)
      local bell = forget(waiter)
      call('ZREM', WAITERS, member)
      if bell then ring(waiter, bell, false) end
    end
  end

  -- Whether anybody who waits has got this job.
  local function give(job)
    local given, gone
    repeat
      local members = waiting('n' .. job.record[NAME])
      for _, member in ipairs(waiting('a')) do members[#members + 1] = member end
      given, gone = hand(load(job.id), members)
    until given or not gone
    return given
  end

  -- The next job for whose claim there is room since others have ended: of the lanes, or names, that these were in.
  local function next_freed(shut)
    local record = freed[#freed]
    local job, unsure
    while record do
      local name, group = record[NAME], record[GROUP]
      local scopes, by_name = limits().scopes(name, group), nil
      for _, scope in ipairs(scopes) do
        if scope[2][CONCURRENCY] and scope[1] == name then by_name = true end
      end
      if by_name then
        job, unsure = lanes().first({[name] = true}, math.huge, shut)
      elseif scopes[1] and not is_paused(record) and not limits().full(name, group, shut) then
        job = lanes().front(lanes().lane_of(record), math.huge)
      end
      if job or unsure then return job, unsure end
      freed[#freed] = nil
      record = freed[#freed]
    end
  end

  -- Who waits for a slot gets what there is room for since claims have ended. Answers whether something is left over.
  local function serve_freed()
    local shut, left = {}, false
    while freed[1] do
      local job, unsure = next_freed(shut)
      if unsure and not job then
        rouse()
        return false
      end
      if job and not give(job) then
        left = true
        freed[#freed] = nil
      end
    end
    return left
  end

  -- Who waits gets what has come, in the order in which it is served; what is left over is told to all who only look.
  local function serve()
    local left = false
    table.sort(came, by_place)
    for _, job in ipairs(came) do
      job = load(job.id)
      if job and job.record[STATE] == 'U' and not is_paused(job.record)
         and not (limited() and not limits().has_room(job.record)) then
        left = not give(job) or left
      end
    end
    left = serve_freed() or left
    if limits_made then
      local opens, name = limits_made.opens()
      if opens then foretell(opens, name) end
    end
    while left do
      left = false
      for _, member in ipairs(waiting('p')) do
        local waiter = string.sub(member, -32)
        local bell = forget(waiter)
        call('ZREM', WAITERS, member)
        if bell then ring(waiter, bell, false) end
        left = true
      end
    end
  end

  waiters_made = {bell_in = bell_in, forget = forget, serve = serve, rouse = rouse}
  return waiters_made
end
