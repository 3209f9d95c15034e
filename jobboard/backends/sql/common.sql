-- Statements that databases share. A database whose file has a text of the same name runs that one: MariaDB's texts name
-- their indexes. How a text is written: see statements.py.

-- name: clock
select {now}

-- name: sides_after
-- A page of the side records of one kind.
select kind, key, value, until, version, {now}
from {sides}
where board = :board and kind = :kind and place > :after
order by place
limit :limit

-- name: answer
select call, attempt, answer, stamp
from {answers}
where handle = :handle and slot = :slot

-- name: outcome_columns
uuid, name, priority, id, key, version, posting, attempts, max_attempts, token, who, created_on, begun, modified_on,
until, errors, retries, job_group, result, refused

-- name: outcomes_newest
select {outcome_columns}
from {outcomes}
where board = :board {behind?}
order by modified_on desc, id desc
limit :limit

-- name: outcomes_behind
and (modified_on, id) < (:modified_on, :id)

-- name: page
-- Live jobs in serving order, behind any place: any of the states that the caller asks for, or overdue.
select {record}, {jobs}.tag, {now}
from {jobs}
where board = :board and state in ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') {also?}
order by priority, id
limit :limit

-- name: page_after
-- The rest of a priority, and the priorities behind it: each is one walk along the index.
select * from (
    select * from (
        select {record}, {jobs}.tag, {now}
        from {jobs}
        where board = :board and state in ('UNCLAIMED', 'SCHEDULED', 'CLAIMED')
            and priority = :priority and id > :id {also?}
        order by priority, id
        limit :limit
    ) as rest
    union all
    select * from (
        select {record}, {jobs}.tag, {now}
        from {jobs}
        where board = :board and state in ('UNCLAIMED', 'SCHEDULED', 'CLAIMED') and priority > :priority {also?}
        order by priority, id
        limit :limit
    ) as others
) as page
order by priority, id
limit :limit

-- name: trash
-- What is in the trash, and what belongs there, as its last lease has lapsed.
select * from (
    select * from (
        select {record}, {jobs}.tag, {now} as now, gone_on as trashed_on
        from {jobs}
        where board = :board and gone_on is not null and state = 'TRASHED' {behind_gone?}
        order by gone_on desc, id desc
        limit :limit
    ) as trashed
    union all
    select * from (
        select {record}, {jobs}.tag, {now} as now, lock_until as trashed_on
        from {jobs}
        where board = :board and wake_at <= {now} and state = 'CLAIMED' and lock_until <= {now}
            and attempts >= max_attempts {behind_lapsed?}
        order by lock_until desc, id desc
        limit :limit
    ) as lapsed
) as page
order by trashed_on desc, id desc
limit :limit

-- name: trash_behind_gone
and gone_on <= :trashed_on and (gone_on < :trashed_on or id < :id)

-- name: trash_behind_lapsed
and lock_until <= :trashed_on and (lock_until < :trashed_on or id < :id)

-- name: counts
-- State, the state that time has made of it, and how many. Each count has an index with all that it needs.
select 'UNCLAIMED', '', count(*) from {jobs} where board = :board and state = 'UNCLAIMED'
union all
select state, '', count(*) from {jobs} where board = :board and wake_at is not null and state <> 'UNCLAIMED'
group by state
union all
select 'TRASHED', '', count(*) from {jobs} where board = :board and gone_on is not null
union all
select state, lapsed, count(*)
from (
    select state, case when state = 'CLAIMED' and attempts >= max_attempts then 'TRASHED' else 'UNCLAIMED' end as lapsed
    from {jobs}
    where board = :board and wake_at <= {now} and lock_until <= {now}
) as overdue
group by state, lapsed

-- name: is_there
-- The name of the board, if it has jobs, or had one that was purged within the last day.
select board from (select board from {jobs} where board = :board limit 1) as with_jobs
union
select board from (select board from {sides} where board = :board and kind = 'purged' limit 1) as with_purged

-- name: next_board
-- One board after the other: DISTINCT would read the whole index.
select board from {jobs} where board > :after order by board, priority, id limit 1

-- name: answer_first
insert into {answers} (handle, slot, call, attempt, answer, stamp)
values (:handle, :slot, :call, :attempt, :answer, {now})
on conflict do nothing

-- name: answer_next
-- The stamp is indexed, and changes rarely.
update {answers}
set call = :call, attempt = :attempt, answer = :answer,
    stamp = case when stamp < {now} - 600000000 then {now} else stamp end
where handle = :handle and slot = :slot and call = :was_call and attempt = :was_attempt

-- name: side_version
select version from {sides} where board = :board and kind = :kind and place = :place

-- name: side_delete
delete from {sides} where board = :board and kind = :kind and place = :place and version = :was

-- name: key_keep
-- A key that outlives its job, until its window ends.
insert into {sides} (board, kind, place, key, value, until, version)
values (:board, 'key', :place, :key, :value, :until, :version)
on conflict (board, kind, place) do update
set value = excluded.value, until = excluded.until, version = excluded.version

-- name: outcome_insert
insert into {outcomes} ({outcome_columns}, board)
values (:uuid, :name, :priority, :id, :key, :version, :posting, :attempts, :max_attempts, :token, :who, :created_on,
    :begun, :modified_on, :until, :errors, :retries, :job_group, :result, :refused, :board)
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

-- name: answers_old
select handle from {answers} where stamp < {now} - 4200000000 order by stamp limit 1000

-- name: sides_old
select kind, place from {sides} where board = :board and until < {now} order by until limit 1000
