-- PostgreSQL's statements. How a text is written: see statements.py. What a column means: see tables.py.
-- The isolation level is READ COMMITTED: each statement sees what was committed before it began.

-- name: of_board
-- coalesce() keeps the planner from the indexes that begin with the board. A table without statistics looks as if next
-- to no row were of this board.
coalesce(board, '') = :board

-- name: is_known
s.version is not distinct from cast(:known as bigint)

-- name: wanted
json_array_elements_text(cast(:wanted as json)) as wanted (name)

-- name: is_one
-- An equals sign in another form. With "=" the order of the index by names, or by groups, is that of all ready jobs, too,
-- and without statistics the planner may take their index, and walk past the jobs of all others.
between :one and :one

-- name: is_one_group
between :one_group and :one_group

-- name: is_wanted
between wanted.name and wanted.name

-- name: is_here
between here.name and here.name

-- name: is_named
between named.name and named.name

-- ==================================================================================================================
-- Fast paths: one statement for the plain case of a verb. They do what the engine does, see fast_paths.py.
--
-- Each restates one transition of jobboard/states.py, and stores the answer of its call, by which a repetition of the
-- call learns what the first try did. Where a statement changes nothing, or fails, the engine does the call.
--
-- A lease or a delay that has ended is left to the sweep, which records a lapse. Where the gate has a value, the board
-- has pauses or limits, and the engine decides.
-- ==================================================================================================================

-- name: instant
-- The time at this moment, behind the wait for a lock.
cast(date_part('epoch', clock_timestamp()) * {second} as bigint)

-- name: has_rules
exists (select from {sides} where board = :board and {gate} and value is not null)

-- name: stamp
-- The stamp of an answer is indexed, and changes rarely.
{now} / {stamp_step} * {stamp_step}

-- name: keep_answer
-- The number of a call must not be null: the statement fails where the slot has this call's answer, or a later one.
on conflict (handle, slot) do update
set call = case when {answers}.call < excluded.call then excluded.call end, attempt = 1, answer = excluded.answer,
    stamp = excluded.stamp

-- name: post_answer
-- Only the first try finds an older answer to replace, and only then there is a row.
insert into {answers} (handle, slot, call, answer, stamp)
values (:handle, :slot, :call, :answer, {stamp})
on conflict (handle, slot) do update
set call = excluded.call, attempt = 1, answer = excluded.answer,
    stamp = excluded.stamp
where {answers}.call < excluded.call
returning {instant} as now

-- name: post_notify
, cast(pg_notify(:channel, :board) as text)

-- name: post
-- Posts one job that is ready at once.
with answer as (
    {post_answer}
)
insert into {jobs} (uuid, name, priority, version, posting, max_attempts, job_group, board,
    state, attempts, retries, token, created_on, modified_on)
select :uuid, :name, :priority, :version, :posting, cast(:max_attempts as int), :job_group, :board,
    'UNCLAIMED', 0, 0, 0, now, now
from answer
returning uuid, id, tag, created_on {notify?}

-- name: post_many
-- Posts several jobs, in their order. A job whose time is yet to come is SCHEDULED. Each column comes as one text, whose
-- values have a control character between them, and another one for NULL. No value holds one: in postings JSON has them
-- escaped. JSON for all of it takes the server twice as long to read, and arrays take the driver long to write.
with answer as (
    {post_answer}
), draft as (
    select given.*, now, case when coalesce(due, now + delay) > now then coalesce(due, now + delay) end as wake_at
    from answer, unnest(
        string_to_array(:uuid, chr(30)), string_to_array(:name, chr(30)),
        cast(string_to_array(:priority, chr(30)) as smallint[]), cast(string_to_array(:version, chr(30)) as int[]),
        string_to_array(:posting, chr(30)), cast(string_to_array(:max_attempts, chr(30), chr(31)) as int[]),
        string_to_array(:job_group, chr(30), chr(31)), cast(string_to_array(:due, chr(30), chr(31)) as bigint[]),
        cast(string_to_array(:delay, chr(30), chr(31)) as bigint[])
    ) with ordinality as given (uuid, name, priority, version, posting, max_attempts, job_group, due, delay, ordinality)
), posted as (
    insert into {jobs} (uuid, name, priority, version, posting, max_attempts, job_group, board,
        state, attempts, retries, token, created_on, modified_on, lock_until, wake_at)
    select uuid, name, priority, version, posting, max_attempts, job_group, :board,
        case when wake_at is null then 'UNCLAIMED' else 'SCHEDULED' end, 0, 0, 0, now, now, wake_at, wake_at
    from draft
    order by ordinality
    returning uuid, id, tag, created_on
)
select posted.* {notify?}
from posted

-- name: take
-- Claims the first ready jobs. While a lease or a delay may have ended, it takes none: the job of that may belong
-- before the others. The limit is written out, as PostgreSQL plans each time for one that it does not know. The ids
-- are an array, as the planner may run a subquery behind IN twice, and take more. Without its order the search for an
-- event might walk through the table.
with {prefix}_clock as materialized (
    select {instant} as now
), taken as (
    update {jobs}
    set state = 'CLAIMED', attempts = attempts + 1, token = greatest(token + 1, now), who = :who, keeper = :keeper,
        lock_until = now + :ttl, wake_at = now + :ttl, modified_on = now, tag = tag + 1
    from {prefix}_clock
    where id = any(array(
        select id
        from {jobs}
        where {ready?} and not {has_other_rules}
            and (
                select wake_at from {jobs} where board = :board and wake_at <= {now} {since?} order by wake_at limit 1
            ) is null
        order by {of_one?} priority, id
        limit {limit?}
        for update skip locked
    ))
    returning {record}, {jobs}.tag
), answer as (
    insert into {answers} (handle, slot, call, answer, stamp)
    select :handle, :slot, :call, string_agg(uuid || ' ' || token, ','), {stamp} from taken having count(*) > 0
    {keep_answer}
)
select * from taken

-- name: take_nothing
-- Why a take has found no job: the time, the next event, the rules, and whether there are ready jobs, which others may
-- hold. A plain EXISTS might walk through the table.
select {now}, {event}, {has_rules},
    (select id from {jobs} where {ready?} order by {of_one?} priority, id limit 1) is not null

-- name: ahead
-- The first ready jobs, of which a take under limits claims one.
select id, tag, name, job_group from {jobs} where {ready?} order by {of_one?} priority, id limit {limit?}

-- name: take_ahead
id = any(:ids) and id || ' ' || tag = any(:versions)

-- name: take_any
board = :board and state = 'UNCLAIMED' and version <= :readable

-- name: take_of_name
-- The jobs of one name, in the order of the index by name: see is_one.
board = :board and state = 'UNCLAIMED' and version <= :readable and name between :name and :name

-- name: of_one
name,

-- name: take_of_names
-- The first jobs of each name, which this finds without a lock, and a few more than wanted, as others may hold some.
-- coalesce() keeps the planner from the index of ready jobs.
coalesce(state, '') = 'UNCLAIMED' and id = any(array(
    select first.id
    from unnest(string_to_array(:names, chr(10))) as wanted (name), lateral (
        select id, priority
        from {jobs}
        where board = :board and state = 'UNCLAIMED' and version <= :readable
            and name between wanted.name and wanted.name
        order by name, priority, id
        limit {some?}
    ) as first
    order by priority, id
    limit {some?}
))

-- name: take_since
-- From a starting point on: the first jobs of each range of priorities, and those that came back since. See starts.py.
-- Without its order, the search for the latter might read the index of names.
coalesce(state, '') = 'UNCLAIMED' and id = any(array(
    select id
    from (
        select first.id, first.priority
        from {ranges?}, lateral (
            select id, priority
            from {jobs}
            where board = :board and state = 'UNCLAIMED' and version <= :readable and {in_range?}
            order by {of_one?} priority, id
            limit {some?}
        ) as first
        union
        select back.id, back.priority
        from (
            select id, priority
            from {jobs}
            where board = :board and state = 'UNCLAIMED' and version <= :readable {of_any?} and returned >= :returned
            order by returned
        ) as back
    ) as found
    order by priority, id
    limit {some?}
))

-- name: survey
-- The first unclaimed job of each range of priorities from a starting point on, leaving out those that came back since;
-- the first lease or delay that has ended; and, in the last row, for how long this ran.
select
    first.priority, first.id, event.wake_at,
    cast(date_part('epoch', clock_timestamp() - statement_timestamp()) * {second} as bigint)
from {ranges?}
left join lateral (
    select priority, id
    from {jobs}
    where board = :board and state = 'UNCLAIMED' and version <= :readable and {in_range?}
        and (returned is null or returned < :returned)
    order by {of_one?} priority, id
    limit 1
) as first on true
left join (
    select wake_at from {jobs} where board = :board and wake_at <= {now} {since} order by wake_at limit 1
) as event on true

-- name: writing
-- The transactions that have written to the table, or are about to. Each takes this lock before it draws an id or reads
-- the clock.
select virtualtransaction
from pg_locks
where database = (select oid from pg_database where datname = current_database())
    and relation = to_regclass('{jobs}') and mode = 'RowExclusiveLock' and pid is distinct from pg_backend_pid()

-- name: since
and wake_at >= :wake

-- name: ranges
unnest(cast(:priorities as bigint[]), cast(:ids as bigint[]), cast(:pasts as bigint[])) as range (priority, id, past)

-- name: ranges_of_names
unnest(string_to_array(:names, chr(10))) as wanted (name)
cross join {ranges}

-- name: in_range
(priority, id) >= (range.priority, range.id) and priority < range.past

-- name: in_range_of_name
(name, priority, id) >= (wanted.name, range.priority, range.id) and (name, priority) < (wanted.name, range.past)

-- name: of_any
and name = any(string_to_array(:names, chr(10)))

-- name: claim
-- Claims one job that is unclaimed, or due, and does not expire.
with {prefix}_clock as materialized (
    select {instant} as now
), taken as (
    update {jobs}
    set state = 'CLAIMED', attempts = attempts + 1, token = greatest(token + 1, now), who = :who, keeper = :keeper,
        lock_until = now + :ttl, wake_at = now + :ttl, modified_on = now, tag = tag + 1
    from {prefix}_clock
    where uuid = :uuid and coalesce(board, '') = :board and not {has_rules}
        and case state when 'UNCLAIMED' then true when 'SCHEDULED' then lock_until <= {now} end and expires is null
    returning {record}, {jobs}.tag
), answer as (
    insert into {answers} (handle, slot, call, answer, stamp)
    select :handle, :slot, :call, uuid || ' ' || token, {stamp} from taken
    {keep_answer}
)
select * from taken

-- name: consume
-- Consumes all of these claims, each given as "uuid token", and leaves their outcomes; or it fails, as an answer must
-- not be null. A claim whose lapse a sweep has recorded may end until another claims the job. A claim that lapsed while
-- the statement waited for its row does not count, as others may have seen the lapse. CASE keeps the planner from the
-- indexes by state, where OR could have it read all of them, and array() has the list of claims split once, not for each
-- job. Only outcomes need the columns.
with taken as (
    delete from {jobs}
    where uuid = any(string_to_array(:uuids, ',')) and coalesce(board, '') = :board
        and uuid || ' ' || token = any(array(select unnest(string_to_array(:claims, ',')))) and who is not null
        and case state when 'UNCLAIMED' then true when 'CLAIMED' then lock_until > {now} end
        and (key_until is null or key_until <= {now}) and not {has_other_rules}
    returning {columns?} lock_until is null or lock_until > {instant} as holds
) {outcomes?}
insert into {answers} (handle, slot, call, answer, stamp)
select :handle, :slot, :call, case when count(*) filter (where holds) = :count then :answer end, {stamp}
from taken
having count(*) > 0
{keep_answer}
returning 1

-- name: consume_outcomes
, outcome as (
    insert into {outcomes} ({kept_at_an_end}, board, begun, modified_on, until, result, refused)
    select {kept_at_an_end}, board, modified_on, {now}, {now} + keep, result, refused
    from taken
    join json_to_recordset(cast(:outcomes as json)) as given (uuid text, keep bigint, result text, refused text)
        using (uuid)
)

-- name: renew
-- Prolongs those of these claims that live, each given as "uuid token". It passes over the jobs that others hold. The
-- limit keeps the planner from other ways than to look for each claim by its uuid.
update {jobs}
set lock_until = {now} + :ttl, tag = tag + 1
where id = any(array(
    select held.id
    from unnest(string_to_array(:uuids, ','), string_to_array(:claims, ',')) as given (uuid, claim), lateral (
        select id
        from {jobs}
        where {jobs}.uuid = given.uuid and coalesce(board, '') = :board
            and {jobs}.uuid || ' ' || token = given.claim and keeper = :handle
            and coalesce(state, '') = 'CLAIMED' and lock_until > {now}
        limit 1
        for update skip locked
    ) as held
))
returning uuid, token

-- ==================================================================================================================
-- Reading, where the text of common.sql will not do
-- ==================================================================================================================

-- name: ready_since
-- From a starting point on.
select {record}, {jobs}.tag
from {jobs}
where {first?}
order by priority, id
limit :limit

-- name: not_full
-- Neither names nor groups have line feeds.
and (job_group is null or name || chr(10) || job_group <> all(:full))

-- ==================================================================================================================
-- Writing, where the text of common.sql will not do
-- ==================================================================================================================

-- name: rely
-- Shows to set_limit and pause, which wait for that, that a commit may rely on an older gate: see under_way.
lock table {answers} in row exclusive mode

-- name: returned_now
-- When a job came back: looks from a starting point find it by that.
case when c.state = 'UNCLAIMED' then {instant} end

-- name: woken
-- When a lease or a delay ends, and never before the statement: see starts.py.
case when c.wake_at is not null then greatest(c.wake_at, {instant}) end

-- name: jobs_update
update {jobs}
set {changed}, returned = {returned_now}, tag = {jobs}.tag + 1
from json_to_recordset(cast(:rows as json)) as c({change})
where {jobs}.id = c.id and {jobs}.tag = c.was

-- name: jobs_delete
delete from {jobs}
using json_to_recordset(cast(:gone as json)) as c(id bigint, was bigint)
where {jobs}.id = c.id and {jobs}.tag = c.was

-- name: commit
-- A whole commit: changes and deletes jobs, each if it has the tag that was read, and stores the answer of the call. It
-- fails, as an answer must not be null, where a job, the gate or the slot is not as it was read.
with changed as (
    {jobs_update}
    returning 1
), gone as (
    {jobs_delete}
    returning 1
), answer as (
    insert into {answers} (handle, slot, call, attempt, answer, stamp)
    select :handle, :slot, :call, :attempt, case when
        (select count(*) from changed) + (select count(*) from gone) = :count {gate_is?}
    then :answer end, {now}
    on conflict (handle, slot) do update
    set call = case when {answers}.call = :was_call and {answers}.attempt = :was_attempt then excluded.call end,
        attempt = excluded.attempt, answer = excluded.answer,
        stamp = case when {answers}.stamp < {now} - {stamp_step} then {now} else {answers}.stamp end
)
select 1 {notify?}

-- name: gate_is
and (select version from {sides} where board = :board and {gate}) is not distinct from cast(:gate as bigint)

-- name: commit_notify
, cast(pg_notify(:channel, :board) as text)

-- name: jobs_replace
-- With what another post brings.
update {jobs}
set {changed}, {replaced}, returned = {returned_now}, tag = {jobs}.tag + 1
from json_to_recordset(cast(:rows as json)) as c({change}, {replacement})
where {jobs}.id = c.id and {jobs}.tag = c.was

-- name: jobs_insert
-- In the order of the rows, which is that of their ids. Passes over a job whose uuid or key is taken.
insert into {jobs} ({inserted}, board)
select {inserted_rows}, :board
from rows from (json_to_recordset(cast(:rows as json)) as ({inserted_types})) with ordinality as c
order by ordinality
on conflict do nothing

-- name: notify
-- Wakes the listeners of a channel when the transaction commits.
select cast(pg_notify(:channel, :payload) as text)

-- name: under_way
-- The transactions that may have claimed by an older gate, which has been replaced just now.
select virtualtransaction
from pg_locks
where database = (select oid from pg_database where datname = current_database())
    and relation = to_regclass('{answers}') and mode = 'RowExclusiveLock' and pid is distinct from pg_backend_pid()

-- ==================================================================================================================
-- Transactions of callers, see callers.py
-- ==================================================================================================================

-- name: place
-- The place of the board's tables. Copies of a whole cluster have all its numbers, but not the instant of its start.
select concat_ws('/', cast(date_part('epoch', pg_postmaster_start_time()) * {second} as bigint), current_database(),
    cast(to_regclass('{jobs}') as oid))

-- ==================================================================================================================
-- Limits: the locks of scopes, see scopes.py
-- ==================================================================================================================

-- name: scopes_locked
-- In one order, so that two transactions never wait for each other. From here on, this transaction waits for any lock no
-- longer than this.
with {prefix}_patience as materialized (
    select set_config('lock_timeout', :wait, true)
)
select place
from {prefix}_patience
cross join {sides} as s
where board = :board and kind = 'scope' and place = any(:places)
order by place
for update of s

-- name: scopes_free_locked
select place
from {sides}
where board = :board and kind = 'scope' and place = any(:places)
order by place
for update skip locked

-- name: parts_locked
-- Of each scope the first part of its lock that is free. A scope is given by the places of its parts.
select part.place
from unnest(string_to_array(:scopes, ' ')) as scope (places), lateral (
    select place
    from {sides}
    where board = :board and kind = 'scope' and place = any(string_to_array(scope.places, ','))
    order by place
    limit 1
    for update skip locked
) as part

-- name: groups
-- A walk from name to name, and in each from group to group: the next entry of the index by groups is the first job of
-- the next group, so that the cost is in the number of groups, and not in that of their jobs. Then the first job of each
-- name that has no group. Of each group, the place of its first job that can be claimed. Without statistics PostgreSQL
-- would read the whole index for min(name).
with recursive named (name) as (
    select (select name from {jobs} where board = :board and state = 'UNCLAIMED' order by name limit 1)
    union all
    select (
        select name
        from {jobs}
        where board = :board and state = 'UNCLAIMED' and name > named.name
        order by name
        limit 1
    )
    from named
    where name is not null
),
grouped (name, job_group, first) as (
    select named.name, next.job_group, next.first
    from named
    cross join lateral (
        select job_group, priority * {rank_step} + id as first
        from {jobs}
        where board = :board and state = 'UNCLAIMED' and {jobs}.name = named.name and job_group is not null
            and version <= :readable
        order by job_group, priority, id
        limit 1
    ) as next
    where named.name is not null {also?}
    union all
    select grouped.name, next.job_group, next.first
    from grouped
    cross join lateral (
        select job_group, priority * {rank_step} + id as first
        from {jobs}
        where board = :board and state = 'UNCLAIMED' and {jobs}.name = grouped.name
            and {jobs}.job_group > grouped.job_group and version <= :readable
        order by job_group, priority, id
        limit 1
    ) as next
)
select * from (
    select name, job_group, first from grouped
    union all
    select named.name, null, next.first
    from named
    cross join lateral (
        select priority * {rank_step} + id as first
        from {jobs}
        where board = :board and state = 'UNCLAIMED' and {jobs}.name = named.name and job_group is null
            and version <= :readable
        order by job_group, priority, id
        limit 1
    ) as next
    where named.name is not null {also?}
) as firsts
order by first
limit :limit

-- name: scopes_make
-- A row without a value is there to be locked. The tidying drops it after an hour, and the next call makes it again.
insert into {sides} (board, kind, place, key, until, version)
select :board, 'scope', place, key, {now} + {hour}, :version
from json_to_recordset(cast(:parts as json)) as part (place text, key text)
order by place
on conflict do nothing

-- ==================================================================================================================
-- The doctor, see doctor.py
-- ==================================================================================================================

-- name: settings
-- What may lose acknowledged data in a crash.
select 'fsync', current_setting('fsync')
union all
select 'synchronous_commit', current_setting('synchronous_commit')

-- name: open_transactions
-- What it is, whose, its state, for how many seconds, and what ends it. Others than these keep no dead rows.
select 'session ' || pid, usename || case when application_name <> '' then ' in ' || application_name else '' end, state,
    cast(extract(epoch from clock_timestamp() - xact_start) as float), 'SELECT pg_terminate_backend(' || pid || ')'
from pg_catalog.pg_stat_activity
where (backend_xmin is not null or backend_xid is not null) and pid <> pg_backend_pid()
union all
select 'prepared transaction ' || gid, owner, 'prepared',
    cast(extract(epoch from clock_timestamp() - prepared) as float),
    'COMMIT PREPARED or ROLLBACK PREPARED ''' || gid || ''''
from pg_catalog.pg_prepared_xacts

-- name: contains
strpos(errors, :error) > 0
