-- SQLite's statements. How a text is written: see statements.py. What a column means: see tables.py.
-- A statement that writes is in a transaction that began by BEGIN IMMEDIATE: nobody else writes meanwhile.

-- name: is_known
s.version is :known

-- name: wanted
(select value as name from json_each(:wanted)) as wanted

-- name: by_name
indexed by "{prefix}_by_name"

-- name: for_update
-- Nobody else writes before the commit.

-- name: skip_locked

-- ==================================================================================================================
-- Fast paths: the plain case of a verb. They do what the engine does, see fast_paths.py.
--
-- Each is a short transaction: BEGIN IMMEDIATE, the statement of the verb, keep_answer and COMMIT. It restates one
-- transition of jobboard/states.py. A repetition of the call learns from the answer what the first try did. Where a
-- statement changes nothing, or not all that it should, the transaction is rolled back, and the engine does the call.
--
-- A lease or a delay that has ended is left to the sweep, which records a lapse. Where the gate has a value, the board
-- has pauses or limits, and the engine decides. The plus of +board keeps the planner from the indexes that begin with
-- the board, where the uuid finds the row.
-- ==================================================================================================================

-- name: has_rules
exists (select 1 from {sides} where board = :board and {gate} and value is not null)

-- name: keep_answer
-- Changes nothing where the slot has this call's answer, or a later one. The stamp is indexed, and changes rarely.
insert into {answers} (handle, slot, call, answer, stamp)
values (:handle, :slot, :call, :answer, {now} / {stamp_step} * {stamp_step})
on conflict (handle, slot) do update
set call = excluded.call, attempt = 1, answer = excluded.answer,
    stamp = excluded.stamp
where call < excluded.call

-- name: post
-- Posts one job at the time of the call. A job whose time is yet to come is SCHEDULED.
insert into {jobs} (uuid, name, priority, version, posting, max_attempts, job_group, board,
    state, attempts, retries, token, tag, created_on, modified_on, lock_until, wake_at)
values (:uuid, :name, :priority, :version, :posting, :max_attempts, :job_group, :board,
    iif(coalesce(:due, :now + :delay) > :now, 'SCHEDULED', 'UNCLAIMED'), 0, 0, 0, 0, :now, :now,
    iif(coalesce(:due, :now + :delay) > :now, coalesce(:due, :now + :delay), null),
    iif(coalesce(:due, :now + :delay) > :now, coalesce(:due, :now + :delay), null))

-- name: last_posted
-- The id of the last job that this transaction has posted.
select last_insert_rowid()

-- name: take
-- Claims the first ready jobs. While a lease or a delay may have ended, it takes none: the job of that may belong
-- before the others.
update {jobs}
set {claimed}
where id in (select id from {jobs} {ready?} order by priority, id limit :limit) and not {has_other_rules}
    and not exists (select 1 from {jobs} where board = :board and wake_at <= {now})
returning {record}, tag

-- name: claimed
state = 'CLAIMED', attempts = attempts + 1, token = max(token + 1, {now}), who = :who, keeper = :keeper,
    lock_until = {now} + :ttl, wake_at = {now} + :ttl, modified_on = {now}, tag = tag + 1

-- name: ahead
-- The first ready jobs, of which a take under limits claims one.
select id, tag, name, job_group from {jobs} {ready?} order by priority, id limit :limit

-- name: take_ahead
where id in (:ids) and id || ' ' || tag in (:versions)

-- name: take_any
where board = :board and state = 'UNCLAIMED' and version <= :readable

-- name: take_of_names
-- The first jobs of each name, and of these the first ones, each found by its id. Old statistics could talk the planner
-- out of either way.
not indexed where id in (
    select first.value
    from json_each(:names) as wanted, json_each((
        select json_group_array(id) from (
            select id
            from {jobs} indexed by "{prefix}_by_name"
            where board = :board and state = 'UNCLAIMED' and version <= :readable and name = wanted.value
            order by priority, id
            limit :limit
        )
    )) as first
)

-- name: take_nothing
-- Why a take has found no job: the time, the next event, the rules, and whether there are jobs now.
select {now}, {event}, {has_rules}, exists (select 1 from {jobs} {ready?})

-- name: claim
-- Claims one job that is unclaimed, or due, and does not expire.
update {jobs}
set {claimed}
where uuid = :uuid and +board = :board and not {has_rules}
    and (state = 'UNCLAIMED' or state = 'SCHEDULED' and lock_until <= {now}) and expires is null
returning {record}, tag

-- name: consume_outcomes
-- Leaves the outcomes of claims, before these are consumed.
insert into {outcomes} ({kept_at_an_end}, board, begun, modified_on, until, result, refused)
select {kept_of_jobs}, board, modified_on, {now}, {now} + json_extract(value, '$[1]'),
    json_extract(value, '$[3]'), json_extract(value, '$[2]')
from json_each(:outcomes)
join {jobs} on uuid = json_extract(value, '$[0]') and +board = :board
where {ends}

-- name: consume
-- Consumes these claims, each given as "uuid token". A claim whose lapse a sweep has recorded may end until another
-- claims the job.
delete from {jobs}
where uuid in (select value from json_each(:uuids)) and +board = :board and {ends} and not {has_other_rules}

-- name: ends
-- "+" keeps SQLite from the indexes by state: each row is found by its uuid.
uuid || ' ' || token in (select value from json_each(:claims)) and who is not null
    and (+state = 'UNCLAIMED' or +state = 'CLAIMED' and lock_until > {now}) and (key_until is null or key_until <= {now})

-- name: renew
-- Prolongs those of these claims that live, each given as "uuid token".
update {jobs}
set lock_until = {now} + :ttl, tag = tag + 1
where uuid in (select value from json_each(:uuids)) and +board = :board
    and uuid || ' ' || token in (select value from json_each(:claims)) and keeper = :handle
    and +state = 'CLAIMED' and lock_until > {now}
returning uuid, token

-- ==================================================================================================================
-- Reading, where the text of common.sql will not do
-- ==================================================================================================================

-- name: groups
-- A walk from name to name, and in each from group to group: to the next one it is one step down the index by groups, so
-- that the cost is in the number of groups, and not in that of their jobs. Of each group, the place of its first job
-- that can be claimed. The last group of each name is NULL: the jobs that have none.
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
grouped (name, job_group) as (
    select name, (
        select job_group
        from {jobs}
        where board = :board and state = 'UNCLAIMED' and {jobs}.name = named.name and job_group is not null
        order by job_group
        limit 1
    )
    from named
    where name is not null {also?}
    union all
    select name, (
        select job_group
        from {jobs}
        where board = :board and state = 'UNCLAIMED' and {jobs}.name = grouped.name
            and {jobs}.job_group > grouped.job_group
        order by job_group
        limit 1
    )
    from grouped
    where job_group is not null
)
select name, job_group, first
from (
    select name, job_group, case
        when job_group is null then (
            select priority * {rank_step} + id
            from {jobs}
            where board = :board and state = 'UNCLAIMED' and {jobs}.name = grouped.name
                and {jobs}.job_group is null and version <= :readable
            order by {jobs}.job_group, priority, id
            limit 1
        )
        else (
            select priority * {rank_step} + id
            from {jobs}
            where board = :board and state = 'UNCLAIMED' and {jobs}.name = grouped.name
                and {jobs}.job_group = grouped.job_group and version <= :readable
            order by {jobs}.job_group, priority, id
            limit 1
        )
    end as first
    from grouped
) as firsts
where first is not null
order by first
limit :limit

-- name: not_full
-- Neither names nor groups have line feeds.
and (job_group is null or name || char(10) || job_group not in (:full))

-- ==================================================================================================================
-- Writing, where the text of common.sql will not do
-- ==================================================================================================================

-- name: jobs_update
update {jobs} set {changed}, tag = tag + 1 where id = :id and tag = :was

-- name: jobs_delete
delete from {jobs} where id = :id and tag = :was

-- name: jobs_replace
-- With what another post brings.
update {jobs} set {changed}, {replaced}, tag = tag + 1
where id = :id and tag = :was

-- name: jobs_insert
-- Passes over a job whose uuid or key is taken.
insert into {jobs} ({inserted}, board)
values ({inserted_values}, :board)
on conflict do nothing

-- ==================================================================================================================
-- Transactions of callers, see callers.py
-- ==================================================================================================================

-- name: place
-- The file of the board's tables.
select file from pragma_database_list where name = 'main'

-- ==================================================================================================================
-- Upkeep: in small steps, see SQLStore.tidy.
-- ==================================================================================================================

-- name: outcomes_drop
delete from {outcomes} where uuid in (:uuids) and board = :board and +until <= {now}

-- name: checkpoint
-- Copies what is committed into the file. It waits for nobody and stops nobody.
pragma wal_checkpoint(passive)
