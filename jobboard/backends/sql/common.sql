-- Statements that databases share. A text of the same name in a database's own file takes the place of the text here.
-- How a text is written: see statements.py. What a column means: see tables.py.

-- ==================================================================================================================
-- Parts of statements
-- ==================================================================================================================

-- name: of_board
board = :board

-- name: in_names
{jobs}.name, priority, id

-- name: is_one
= :one

-- name: is_one_group
= :one_group

-- name: is_wanted
= wanted.name

-- name: has_other_rules
-- Whether the board has pauses or limits that the caller does not know.
exists (select 1 from {sides} where board = :board and {gate} and value is not null and version <> :gate)

-- name: for_update
for update

-- name: skip_locked
for update skip locked

-- name: of_names
and name = any(:names)

-- name: of_groups
and job_group = any(:groups)

-- name: of_states
and (state = any(:states) or wake_at <= {now})

-- name: without
and name <> all(:without)

-- ==================================================================================================================
-- Reading: no statement here locks anything, but for those whose name ends with _locked.
-- ==================================================================================================================

-- name: clock
select {now}

-- name: read
select {record}, {jobs}.tag, {now}
from {jobs} {by_uuid}
where uuid = any(:uuids) and {of_board}

-- name: read_locked
{read}
{for_update}

-- name: read_free_locked
-- The first of these jobs that are as they were read, and that no other transaction holds.
select {record}, {jobs}.tag
from {jobs}
where id = any(:ids) and id || ' ' || tag = any(:versions)
order by priority, id
limit :limit
{skip_locked}

-- name: holders
-- The jobs that hold keys.
select live_key, uuid, id, tag
from {jobs} {by_key}
where board = :board and live_key = any(:keys)

-- name: holders_locked
{holders}
{for_update}

-- name: sides
-- One row at least, so that the time is known.
select s.kind, s.{key}, s.value, s.until, s.version, clock.now
from (select {now} as now) as clock
left join {sides} as s on s.board = :board and s.kind = any(:kinds) and s.place = any(:places)

-- name: sides_locked
select kind, {key}, value, until, version, {now}
from {sides} {by_primary}
where board = :board and kind = any(:kinds) and place = any(:places)
order by kind, place
{for_update}

-- name: sides_after
-- A page of the side records of one kind.
select kind, {key}, value, until, version, {now}
from {sides}
where board = :board and kind = :kind and place > :after
order by place
limit :limit

-- name: answer
select {call}, attempt, answer, stamp
from {answers}
where handle = :handle and slot = :slot

-- name: outcomes
select {outcome_columns}
from {outcomes}
where uuid = any(:uuids) and {of_board}

-- name: outcomes_newest
select {outcome_columns}
from {outcomes} {by_outcomes_newest}
where board = :board {behind?}
order by modified_on desc, id desc
limit :limit

-- name: minutes
-- The outcomes by the minute of their end, and how many of them are still kept.
select minute, count(*), sum(case when until > {now} then 1 else 0 end)
from (
    select modified_on - modified_on % {minute} as minute, until
    from {outcomes} {by_outcomes_newest}
    where board = :board and modified_on >= :since
    order by modified_on desc, id desc
    limit :most
) as newest
group by minute

-- name: outcomes_behind
and modified_on <= :modified_on and (modified_on < :modified_on or id < :id)

-- name: look
-- What a look reads at one instant: the time, the gate, without a value that is known already, the first lease or delay
-- that has ended, and the first jobs that can be claimed. One row at least.
select {now}, s.version, case when {is_known} then null else s.value end,
    (select wake_at from {jobs} {by_wake} where board = :board and wake_at <= {now} {since?} order by wake_at limit 1),
    ready.*
from (select 1) as one
left join {sides} as s on s.board = :board and s.{gate}
left join (
    {ready?}
) as ready on true

-- name: ready_none
select null as uuid

-- name: moment
-- The time, and the highest stored id: see starts.py.
select {now}, (select id from {jobs} where id >= :highest order by id desc limit 1)

-- name: next_event
-- When the next lease or delay ends.
select {event}

-- name: event
-- The first instant behind another one at which a lease or a delay ends. An expiry counts once it has passed, and has to
-- be swept; before, it makes no job claimable, and wakes nobody. Past many expiries, the next one of them does, as this
-- must not walk far.
coalesce(
    (select case when {is_event} then wake_at end {events} limit 1),
    (select min(wake_at) from (select wake_at, state {events} limit {most_overdue}) as ahead where {is_event}),
    (select wake_at {events} limit 1 offset {most_overdue})
)

-- name: events
from {jobs} {by_wake} where board = :board and wake_at > :behind order by wake_at

-- name: is_event
(state <> 'UNCLAIMED' or wake_at <= {now})

-- name: overdue
-- The jobs whose lease or delay has ended.
select {record}, {jobs}.tag
from {jobs} {by_wake}
where board = :board and wake_at <= :now
order by wake_at
limit {most_overdue}

-- name: overdue_free_locked
{overdue}
{skip_locked}

-- name: ready
-- The first jobs that can be claimed, in serving order.
select {record}, {jobs}.tag
from {jobs} {by_ready}
where board = :board and state = 'UNCLAIMED' and version <= :readable {also?}
order by priority, id
limit :limit

-- name: ready_of
-- Of one name: as they lie in the index by name.
select * from (
    select {record}, {jobs}.tag
    from {jobs} {by_name}
    where board = :board and state = 'UNCLAIMED' and name {is_one} and version <= :readable {also?}
    order by {in_names}
    limit :limit
) as of_name

-- name: ready_of_all
select * from (
{ones?}
) as of_each
order by priority, id
limit :limit

-- name: first_names
-- Of many names those whose first jobs come first. The first jobs of all these names are among theirs.
select name
from (
    select wanted.name, (
        select priority * {rank_step} + id
        from {jobs} {by_name}
        where board = :board and state = 'UNCLAIMED' and {jobs}.name {is_wanted} and version <= :readable {also?}
        order by {in_names}
        limit 1
    ) as first
    from {wanted}
) as firsts
where first is not null
order by first
limit :limit

-- name: names
-- The next names of jobs that can be claimed: from one to the next along the index by name. A step costs one look-up.
with recursive walk (name, step) as (
    select (
        select name from {jobs}
        where board = :board and state = 'UNCLAIMED' and name > :after
        order by name limit 1
    ), 1
    union all
    select (
        select name from {jobs}
        where board = :board and state = 'UNCLAIMED' and name > walk.name
        order by name limit 1
    ), step + 1
    from walk
    where walk.name is not null and step < {page}
)
select name from walk where name is not null

-- name: page
-- Live jobs in serving order, behind any place: any of the states that the caller asks for, or overdue.
select {record}, {jobs}.tag, {now}
from {jobs} {by_serving}
where board = :board and gone_on is null {also?}
order by priority, id
limit :limit

-- name: page_after
-- The rest of a priority, and the priorities behind it: each is one walk along the index.
select * from (
    select * from (
        select {record}, {jobs}.tag, {now}
        from {jobs} {by_serving}
        where board = :board and gone_on is null and priority = :priority and id > :id {also?}
        order by priority, id
        limit :limit
    ) as rest
    union all
    select * from (
        select {record}, {jobs}.tag, {now}
        from {jobs} {by_serving}
        where board = :board and gone_on is null and priority > :priority {also?}
        order by priority, id
        limit :limit
    ) as others
) as page
order by priority, id
limit :limit

-- name: trash
-- The jobs in the trash, and those that belong there, as they have expired or their last lease has lapsed. MariaDB
-- finds the first part of an index by a comparison alone, and not by "is not null".
select * from (
    select * from (
        select {record}, {jobs}.tag, {now} as now, gone_on as trashed_on
        from {jobs}
        where board = :board and gone_on > 0 and state = 'TRASHED' {behind_gone?}
        order by gone_on desc, id desc
        limit :limit
    ) as trashed
    union all
    select * from (
        select {record}, {jobs}.tag, {now} as now, {ended_on} as trashed_on
        from {jobs}
        where board = :board and wake_at <= {now} and lock_until <= {now}
            and {belongs_there} {behind_lapsed?}
        order by {ended_on} desc, id desc
        limit :limit
    ) as lapsed
) as page
order by trashed_on desc, id desc
limit :limit

-- name: belongs_there
(
    state = 'UNCLAIMED' or state = 'SCHEDULED' and expires <= {now}
    or state = 'CLAIMED' and attempts >= max_attempts
)

-- name: ended_on
-- When an overdue job has gone to the trash.
case when state = 'SCHEDULED' then expires else lock_until end

-- name: trash_behind_gone
and gone_on <= :trashed_on and (gone_on < :trashed_on or id < :id)

-- name: trash_behind_lapsed
and {ended_on} <= :trashed_on and ({ended_on} < :trashed_on or id < :id)

-- name: walk
-- The number and the last of the next :most entries of an order, and the first jobs among them that meet conditions. One
-- statement, so that both tell of one instant.
select bound.looked, bound.last_place, bound.last_id, page.*
from (
    select count(*) over () as looked, place as last_place, id as last_id
    from ({places?}) as places
    order by place {back?}, id {back?}
    limit 1
) as bound
left join (
    select {record}, {jobs}.tag, {jobs}.now, {jobs}.place
    from ({entries?}) as {jobs}
    where {jobs}.id > 0 {also?}
    {fitting?}
) as page on true

-- name: first_fitting
order by place, id
limit :fitting

-- name: last_fitting
order by place desc, id desc
limit :fitting

-- name: longest_fitting
order by modified_on, {jobs}.id
limit :fitting

-- name: walk_places
{jobs}.id

-- name: walk_entries
{jobs}.*, {now} as now

-- name: walk_serving
select {columns?}, priority as place
from {jobs} {by_serving}
where board = :board and gone_on is null {behind?}
order by priority, id
limit :most

-- name: tie_serving
and priority = :place and id > :id

-- name: past_serving
and priority > :place

-- name: few_claims
-- The number of claims, up to :most.
select count(*)
from (select 1 as held from {jobs} {by_claims} where board = :board and state = 'CLAIMED' limit :most) as claims

-- name: walk_few_claims
-- By names, as the index of claims has them: a database that sorted them would read all jobs.
select {columns?}, {jobs}.id as place
from {jobs} {by_claims}
where board = :board and state = 'CLAIMED'
order by name
limit :most

-- name: walk_claims
-- The entries of delayed jobs, and of jobs that expire, count, too, as they lie between those of claims.
select {columns?}, wake_at as place
from {jobs} {by_wake}
where board = :board and wake_at > 0 {behind?}
order by wake_at, id
limit :most

-- name: walk_due
-- Like walk_claims, from the present on.
select {columns?}, wake_at as place
from {jobs} {by_wake}
where board = :board and wake_at > {now} {behind?}
order by wake_at, id
limit :most

-- name: tie_wake
and wake_at = :place and id > :id

-- name: past_wake
and wake_at > :place

-- name: overdue_looked
-- The jobs among which walk_trash looks for lapses.
select count(*)
from (
    select 1 as due from {jobs} {by_wake} where board = :board and wake_at > 0 and wake_at <= {now} limit {most_settled}
) as overdue

-- name: walk_trash
select * from (
    select * from (
        select {columns?}, gone_on as place
        from {jobs}
        where board = :board and gone_on > 0 and state = 'TRASHED' {behind_gone?}
        order by gone_on desc, id desc
        limit :most
    ) as trashed
    union all
    select * from (
        select {columns?}, {ended_on} as place
        from (
            select * from {jobs} {by_wake}
            where board = :board and wake_at > 0 and wake_at <= {now}
            order by wake_at, id
            limit {most_settled}
        ) as {jobs}
        where lock_until <= {now}
            and {belongs_there} {behind_lapsed?}
        order by {ended_on} desc, id desc
        limit :most
    ) as lapsed
) as gone
order by place desc, id desc
limit :most

-- name: behind_gone
and (gone_on, id) < (:place, :id)

-- name: behind_lapsed
and ({ended_on}, id) < (:place, :id)

-- name: state_now
-- The state that time has made of the stored one.
case
    when wake_at is null or wake_at > {now} then state
    when state = 'CLAIMED' and lock_until > {now} then state
    when state = 'CLAIMED' and attempts >= max_attempts or state <> 'CLAIMED' and expires <= {now} then 'TRASHED'
    else 'UNCLAIMED' end

-- name: in_states
and {state_now} = any(:states)

-- name: held_shorter
and (modified_on > :shorter or modified_on = :shorter and {jobs}.id > :shorter_id)

-- name: with_group
and job_group = :group

-- name: with_owner
and who = :owner

-- name: with_key
and {key} = :key

-- name: with_error
and {contains}

-- name: contains
instr(errors, :error) > 0

-- name: posted_from
and created_on >= :posted_from

-- name: posted_before
and created_on < :posted_before

-- name: name_counts
-- How many jobs of each name can be claimed, up to :most, and when the first of them was posted. A walk along the index
-- by name goes from each priority of a name to the next one. A step costs one look-up.
with recursive firsts (id) as (
    select (
        select id from {jobs} where board = :board and state = 'UNCLAIMED' order by name, priority, id limit 1
    )
    union all
    select coalesce(
        (
            select id from {jobs}
            where board = :board and state = 'UNCLAIMED' and name {is_here} and priority > here.priority
            order by name, priority, id
            limit 1
        ), (
            select id from {jobs}
            where board = :board and state = 'UNCLAIMED' and name > here.name
            order by name, priority, id
            limit 1
        )
    )
    from firsts
    join {jobs} as here on here.id = firsts.id
)
select named.name, (
    select count(*)
    from (
        select 1 as one from {jobs} where board = :board and state = 'UNCLAIMED' and name {is_named} limit :most
    ) as of_name
), named.posted
from (
    select here.name, min(here.created_on) as posted
    from firsts
    join {jobs} as here on here.id = firsts.id
    group by here.name
) as named

-- name: is_here
= here.name

-- name: is_named
= named.name

-- name: wake_counts
-- The delayed and the running jobs of each name, with the state that time has made of the stored one; and the jobs that
-- have expired, which are counted among those that can be claimed.
select name, stored, state, count(*), min(created_on)
from (
    select name, created_on, state as stored, {state_now} as state
    from (
        select * from (
            select * from {jobs} {by_wake} where board = :board and wake_at > 0 and state = 'CLAIMED'
            order by wake_at
            limit :most
        ) as claimed
        union all
        select * from (
            select * from {jobs} {by_wake} where board = :board and wake_at > 0 and state = 'SCHEDULED'
            order by wake_at
            limit :most
        ) as scheduled
        union all
        select * from (
            select * from {jobs} {by_wake} where board = :board and wake_at <= {now} and state = 'UNCLAIMED'
            order by wake_at
            limit :most
        ) as expired
    ) as {jobs}
) as waking
group by name, stored, state

-- name: counts
-- State, the state that time has made of it, and how many. Each count has an index with all that it needs.
select 'UNCLAIMED', '', count(*) from {jobs} where board = :board and state = 'UNCLAIMED'
union all
select state, '', count(*) from {jobs} where board = :board and wake_at is not null and state <> 'UNCLAIMED'
group by state
union all
select 'TRASHED', '', count(*) from {jobs} where board = :board and gone_on > 0
union all
{counts_overdue}

-- name: count_outcomes
-- No more than :most, over an index.
select count(*) from (select 1 as one from {outcomes} where board = :board limit :most) as kept

-- name: counts_overdue
select state, lapsed, count(*)
from (
    select state, case
        when state = 'CLAIMED' and attempts >= max_attempts or state <> 'CLAIMED' and expires <= {now} then 'TRASHED'
        else 'UNCLAIMED' end as lapsed
    from {jobs}
    where board = :board and wake_at <= {now} and lock_until <= {now}
) as overdue
group by state, lapsed

-- name: counts_capped
-- No count goes beyond :most.
select 'UNCLAIMED', '', count(*) from (
    select 1 as one from {jobs} where board = :board and state = 'UNCLAIMED' limit :most
) as ready
union all
select 'SCHEDULED', '', count(*) from (
    select 1 as one from {jobs} where board = :board and wake_at > 0 and state = 'SCHEDULED' limit :most
) as scheduled
union all
select 'CLAIMED', '', count(*) from (
    select 1 as one from {jobs} where board = :board and wake_at > 0 and state = 'CLAIMED' limit :most
) as claimed
union all
select 'TRASHED', '', count(*) from (
    select 1 as one from {jobs} where board = :board and gone_on > 0 limit :most
) as trashed

-- name: is_there
-- The name of the board, if it has jobs, or had one that was purged within the last day.
select board from (
    select board from {jobs} {by_serving} where board = :board and gone_on is null order by priority, id limit 1
) as with_live
union
select board from (
    select board from {jobs} where board = :board and gone_on > 0 order by gone_on, id limit 1
) as with_trashed
union
select board from (select board from {sides} where board = :board and kind = 'purged' limit 1) as with_purged

-- name: next_board
-- One board after the other: DISTINCT would read the whole index.
select board
from (
    select * from (
        select board from {jobs} where board > :after and gone_on is null order by board, priority, id limit 1
    ) as with_live
    union all
    select * from (
        select board from {jobs} where board > :after and gone_on > 0 order by board, gone_on, id limit 1
    ) as with_trashed
) as boards
order by board
limit 1

-- ==================================================================================================================
-- Writing: the parts of one commit. First it locks and compares, and then it writes.
-- ==================================================================================================================

-- name: jobs_locked
-- Waits for other transactions.
select id, tag from {jobs} {by_primary} where id = any(:ids) order by id {for_update}

-- name: jobs_free_locked
-- Passes over the jobs that other transactions hold.
select id, tag from {jobs} {by_primary} where id = any(:ids) order by id {skip_locked}

-- name: job_ids
select uuid, id, tag from {jobs} where uuid = any(:uuids) and {of_board}

-- name: answer_first
insert into {answers} (handle, slot, {call}, attempt, answer, stamp)
values (:handle, :slot, :call, :attempt, :answer, {now})
on conflict do nothing

-- name: answer_next
-- The stamp is indexed, and changes rarely.
update {answers}
set {call} = :call, attempt = :attempt, answer = :answer,
    stamp = case when stamp < {now} - {stamp_step} then {now} else stamp end
where handle = :handle and slot = :slot and {call} = :was_call and attempt = :was_attempt

-- name: side_version
select version from {sides} where board = :board and kind = :kind and place = :place

-- name: side_insert
insert into {sides} (board, kind, place, key, value, until, version)
values (:board, :kind, :place, :key, :value, coalesce(cast(:until as bigint), {now} + cast(:ttl as bigint)), :version)
on conflict do nothing

-- name: side_update
update {sides}
set value = :value, until = coalesce(cast(:until as bigint), {now} + cast(:ttl as bigint)), version = :version
where board = :board and kind = :kind and place = :place and version = :was

-- name: side_delete
delete from {sides} where board = :board and kind = :kind and place = :place and version = :was

-- name: key_keep
-- A key that outlives its job, until its window ends.
insert into {sides} (board, kind, place, key, value, until, version)
values (:board, 'key', :place, :key, :value, :until, :version)
on conflict (board, kind, place) do update
set value = excluded.value, until = excluded.until, version = excluded.version

-- name: keys_kept
-- The windows of keys that still run.
select {key}, value from {sides} where board = :board and kind = 'key' and place = any(:places) and until > {now}

-- name: outcome_insert
insert into {outcomes} ({outcome_columns}, board)
values ({outcome_values}, :board)
on conflict do nothing

-- name: outcome_delete
delete from {outcomes} where uuid = :uuid and board = :board

-- name: part_begin
-- A commit within a transaction that goes on if the commit is refused.
savepoint jobboard_commit

-- name: part_end
release savepoint jobboard_commit

-- name: part_undo
rollback to savepoint jobboard_commit

-- ==================================================================================================================
-- Limits: a call that begins a claim locks the scopes, and then counts in a new statement, see scopes.py.
-- ==================================================================================================================

-- name: scopes_there
-- Which of these scopes have records.
select place from {sides} where board = :board and kind = 'scope' and place = any(:places)

-- name: claims_of_names
-- How many jobs of each of these names are claimed, and how many of these claims have lapsed. Not those that a mover
-- holds. One row at least, so that the time is known.
select clock.now, c.name, c.job_group, c.claims, c.lapsed
from (select {now} as now) as clock
left join (
    select name, null as job_group, count(*) as claims, {lapsed} as lapsed
    from {jobs}
    where board = :board and state = 'CLAIMED' and name = any(:names) and lock_until <> {held_until}
    group by name
) as c on true

-- name: claims_of_groups
-- The same of each group of these names.
select clock.now, c.name, c.job_group, c.claims, c.lapsed
from (select {now} as now) as clock
left join (
    select name, job_group, count(*) as claims, {lapsed} as lapsed
    from {jobs}
    where board = :board and state = 'CLAIMED' and name = any(:names) and job_group = any(:groups)
        and lock_until <> {held_until}
    group by name, job_group
) as c on true

-- name: lapsed
sum(case when lock_until <= {now} then 1 else 0 end)

-- name: lapsed_of_names
select {record}, {jobs}.tag
from {jobs}
where board = :board and state = 'CLAIMED' and name = any(:names) and lock_until <= {now} {also?}
limit {most_lapsed}

-- name: ready_of_group
-- The first jobs of one group that can be claimed, as they lie in the index by groups.
select * from (
    select {record}, {jobs}.tag
    from {jobs} {by_group}
    where board = :board and state = 'UNCLAIMED' and name = :one_name
        and job_group {is_one_group} and version <= :readable
    order by job_group, priority, id
    limit :limit
) as of_group

-- name: ready_of_group_all
{ready_of_all}

-- name: ready_of_none
-- The first jobs of one name that have no group.
select * from (
    select {record}, {jobs}.tag
    from {jobs} {by_group}
    where board = :board and state = 'UNCLAIMED' and name = :one_name and job_group is null and version <= :readable
    order by job_group, priority, id
    limit :limit
) as of_none

-- name: ready_of_none_all
{ready_of_group_all}

-- ==================================================================================================================
-- Upkeep: in small steps, see SQLStore.tidy.
-- ==================================================================================================================

-- name: answers_old
select handle from {answers} where stamp < {now} - {answer_age} order by stamp limit {tidied}

-- name: answers_drop
delete from {answers} where handle = any(:handles) and stamp < {now} - {answer_age}

-- name: sides_old
select kind, place from {sides} where board = :board and until < {now} order by until limit {tidied}

-- name: sides_drop
delete from {sides} where board = :board and kind = :kind and place = any(:places) and until < {now}

-- name: outcomes_old
select uuid from {outcomes} where board = :board and until <= {now} order by until limit {tidied_outcomes}

-- name: outcomes_drop
delete from {outcomes} where uuid = any(:uuids) and {of_board} and until <= {now}
