-- MariaDB's statements, and MySQL's. How a text is written: see statements.py. What a column means: see tables.py.
-- The isolation level is READ COMMITTED. Hints name the index where statistics could talk the optimiser out of it: a
-- sort locks all that it reads.

-- name: utf8
-- For texts of JSON, which have the server's default character set otherwise.
character set utf8mb4

-- name: collated
-- For texts of JSON that are compared with columns: the character set and the collation of the columns. MySQL's is
-- another.
{utf8} /*M! collate utf8mb4_nopad_bin */ /*!80000 collate utf8mb4_0900_bin */

-- name: in_names
-- With a column that is compared with one value, it would sort.
priority, id

-- name: is_known
s.version <=> :known

-- name: instant
-- The time at this moment, behind the wait for a lock.
({now} + timestampdiff(microsecond, now(6), sysdate(6)))

-- name: wanted
json_table(:wanted, '$[*]' columns (name varchar({most_text}) {collated} path '$')) as wanted

-- ==================================================================================================================
-- Fast paths: one statement for the plain case of a verb. They do what the engine does, see fast_paths.py.
--
-- Posts and ends are compound statements: a transaction with its commit in one request. A take is two: it locks jobs,
-- and claims them. Each restates one transition of jobboard/states.py, and stores the answer of its call, by which a
-- repetition of the call learns what the first try did. Where a statement changes nothing, or fails, the engine does
-- the call. MySQL has no compound statements.
--
-- A lease or a delay that has ended is left to the sweep, which records a lapse. Where the gate has a value, the
-- board has pauses or limits, and the engine decides. A row goes to the client as a JSON array, as each column costs
-- the driver more. Its first element gives the array a collation, where those of the columns differ.
-- ==================================================================================================================

-- name: has_rules
exists (select 1 from {sides} where board = :board and {gate} and value is not null)

-- name: stamp
-- The stamp of an answer is indexed, and changes rarely.
{now} div {stamp_step} * {stamp_step}

-- name: keep_answer
-- The number of a call must not be null: fails where the slot has this call's answer, or a later one.
insert into {answers} (handle, slot, `call`, answer, stamp) values (:handle, :slot, :call, :answer, {stamp})
on duplicate key update `call` = if(`call` < values(`call`), values(`call`), null), attempt = 1,
    answer = values(answer), stamp = values(stamp);

-- name: post
-- Posts one job that is ready at once.
begin not atomic
    {keep_answer}
    insert into {jobs} (uuid, name, priority, version, posting, max_attempts, job_group, board,
        state, attempts, retries, token, created_on, modified_on)
    values (:uuid, :name, :priority, :version, :posting, :max_attempts, :job_group, :board,
        'UNCLAIMED', 0, 0, 0, {now}, {now})
    returning json_array('', uuid, id, tag, created_on);
    commit;
end

-- name: post_many
-- Posts several jobs, in their order.
begin not atomic
    declare l_now bigint default {now};
    {keep_answer}
    insert into {jobs} (uuid, name, priority, version, posting, max_attempts, job_group, board,
        state, attempts, retries, token, created_on, modified_on, lock_until, wake_at)
    values :rows
    returning json_array('', uuid, id, tag, created_on);
    commit;
end

-- name: post_many_row
(:uuid, :name, :priority, :version, :posting, :max_attempts, :job_group, :board,
    'UNCLAIMED', 0, 0, 0, l_now, l_now, null, null)

-- name: post_many_row_later
-- A job whose time is yet to come is SCHEDULED.
(:uuid, :name, :priority, :version, :posting, :max_attempts, :job_group, :board,
    if({due_on} > l_now, 'SCHEDULED', 'UNCLAIMED'), 0, 0, 0, l_now, l_now,
    if({due_on} > l_now, {due_on}, null), if({due_on} > l_now, {due_on}, null))

-- name: due_on
coalesce(:due, l_now + :delay)

-- name: take
-- Locks the first ready jobs. While a lease or a delay may have ended, there are none to take: the job of that may
-- belong before the others.
select json_array('' collate utf8mb4_bin, {record}, tag, {now})
from {jobs} force index (`{prefix}_{index?}`)
where board = :board and state = 'UNCLAIMED' and version <= :readable {of_names?} and not {overdue_there}
order by priority, id
limit :limit
for update skip locked

-- name: take_of_all
-- The same of several names. It finds the first jobs of each without a lock, and a few more than wanted, as others may
-- hold some. Then it locks them in that order up to the limit: if it sorted them, it would lock them all.
select json_array('' collate utf8mb4_bin, {record}, tag, {now})
from (
    select id, priority from (
        {ones?} {returned?}
    ) as of_each
    where not {overdue_there}
    order by priority, id
    limit :some
) as first
straight_join {jobs} force index (primary) on {jobs}.id = first.id
where board = :board and state = 'UNCLAIMED'
limit :limit
for update skip locked

-- name: take_of
(
    select id, priority
    from {jobs} force index (`{prefix}_by_name`)
    where board = :board and state = 'UNCLAIMED' and version <= :readable and name = :one
    order by priority, id
    limit :some
)

-- name: ahead
-- The first ready jobs, of which a take under limits claims one.
select json_array('' collate utf8mb4_bin, {jobs}.priority, {jobs}.id, tag, name, job_group)
from (
    select id, priority from (
        {ones?} {returned?}
    ) as of_each
    order by priority, id
    limit :some
) as first
straight_join {jobs} force index (primary) on {jobs}.id = first.id
where board = :board and state = 'UNCLAIMED'

-- name: ahead_any
(
    select id, priority
    from {jobs} force index (`{prefix}_ready`)
    where board = :board and state = 'UNCLAIMED' and version <= :readable
    order by priority, id
    limit :some
)

-- name: take_ahead
-- Locks the first free one of these jobs. They are given in serving order.
select json_array('' collate utf8mb4_bin, {record}, {jobs}.tag, {now})
from {versions}
straight_join {jobs} force index (primary) on {jobs}.id = wanted.id
where {jobs}.tag = wanted.tag and not {overdue_there}
limit :limit
for update skip locked

-- name: versions
-- These jobs, and an id that no job has: the server unlocks a row whose tag is another when it goes on to the next id.
json_table(json_array_append(:tags, '$', json_array(0, 0)), '$[*]' columns (
    id bigint path '$[0]', tag bigint path '$[1]'
)) as wanted

-- name: take_since
-- From a starting point on: the first jobs of a range of priorities, and a few more. See starts.py.
(
    select id, priority
    from {jobs} force index (`{prefix}_{index?}`)
    where board = :board and state = 'UNCLAIMED' and version <= :readable {of_one?} and {in_range}
    order by priority, id
    limit :some
)

-- name: take_below
-- And those of the priorities before the first range, each found by itself: a walk along them all would go on through
-- the dead entries of the range, up to its first live one.
(
    select id, {jobs}.priority
    {from_below}
    order by priority, id
    limit :some
)

-- name: from_below
from json_table(:below, '$[*]' columns (priority smallint path '$')) as below
straight_join {jobs} force index (`{prefix}_{index?}`)
    on board = :board and state = 'UNCLAIMED' {of_one?} and {jobs}.priority = below.priority
where version <= :readable

-- name: returned
-- And the jobs that came back since.
union (
    select id, priority
    from {jobs} force index (`{prefix}_returned`)
    where board = :board and returned >= :returned and state = 'UNCLAIMED' and version <= :readable {of_names?}
)

-- name: survey_since
-- The first unclaimed job of a range of priorities from a starting point on, leaving out those that came back since.
(
    select priority, id
    from {jobs} force index (`{prefix}_{index?}`)
    where board = :board and state = 'UNCLAIMED' and version <= :readable {of_one?} and {in_range}
        and (returned is null or returned < :returned)
    order by priority, id
    limit 1
)

-- name: survey_below
(
    select {jobs}.priority, id
    {from_below} and (returned is null or returned < :returned)
    order by priority, id
    limit 1
)

-- name: survey_all
-- With the first lease or delay that has ended, and for how long this ran.
select json_array('', first.priority, first.id, (
    select wake_at
    from {jobs} force index (`{prefix}_wake`)
    where board = :board and wake_at <= {now} {since}
    order by wake_at
    limit 1
), timestampdiff(microsecond, now(6), sysdate(6)))
from (select 1) as one
left join ({ones?}) as first on true

-- name: caller_locked
-- Shows to surveys that a transaction of a caller's is open.
select version
from {sides}
where board = :board and kind = 'caller' and place = mod({now} div :micros, :callers)
lock in share mode

-- name: callers_free_locked
-- Callers wait for these locks, so that they end with the request, whatever becomes of the process that has sent it.
begin not atomic
    select place from {sides} where board = :board and kind = 'caller' for update skip locked;
    commit;
end

-- name: since
-- With a column that the index lacks, so that InnoDB compares each entry with the upper bound. By the index alone it
-- would walk on through the dead entries of leases that had yet to end, to the next live one.
and wake_at >= :wake and lock_until is not null

-- name: in_range
(priority = :one_priority and id >= :one_id or priority > :one_priority and priority < :one_past)

-- name: of_one
and name = :one_name

-- name: overdue_there
exists (select 1 from {jobs} force index (`{prefix}_wake`) where board = :board and wake_at <= {now} {since?} limit 1)

-- name: take_nothing
-- Why a take has found no job: the time, the next event, the rules, and whether there are ready jobs, which others may
-- hold.
select json_array('', {now}, {event}, {has_rules}, exists (
    select 1
    from {jobs} force index (`{prefix}_{index?}`)
    where board = :board and state = 'UNCLAIMED' and version <= :readable {of_names?}
))

-- name: claim
-- Locks one job that is unclaimed, or due, and does not expire.
select json_array('' collate utf8mb4_bin, {record}, tag, {now})
from {jobs} force index (`{prefix}_uuid`)
where uuid = :uuid and board = :board and (state = 'UNCLAIMED' or state = 'SCHEDULED' and lock_until <= {now})
    and expires is null
for update

-- name: claim_locked
-- Claims jobs that are locked. set_limit and pause wait for those who have locked the gate.
begin not atomic
    declare l_has_rules bool;
    select value is not null and version <> :gate into l_has_rules
    from {sides} where board = :board and {gate} lock in share mode;
    if l_has_rules then
        signal sqlstate '23000' set mysql_errno = {duplicate}, message_text = 'the board has rules';
    end if;
    {keep_answer}
    update {jobs} force index (primary)
    set state = 'CLAIMED', attempts = attempts + 1, token = greatest(token + 1, :now), who = :who, keeper = :keeper,
        lock_until = :now + :ttl, wake_at = :now + :ttl, modified_on = :now, tag = tag + 1,
        returned = null, spare = ''
    where id in (:ids);
    commit;
end

-- name: consume
-- Consumes all of these claims, each given as "uuid token", and leaves their outcomes; or it fails. A claim whose
-- lapse a sweep has recorded may end until another claims the job. Outcomes are left of rows that the statement locks,
-- so that these are the rows which are deleted.
begin not atomic
    {keep_answer}
    {outcomes?}
    delete {jobs}
    from {jobs} force index (`{prefix}_uuid`)
    where uuid in (:uuids) and board = :board and {ends};
    if row_count() <> :count or {has_other_rules} then
        signal sqlstate '23000' set mysql_errno = {duplicate}, message_text = 'not all of these claims end';
    end if;
    commit;
end

-- name: consume_outcomes
insert into {outcomes} ({kept_at_an_end}, board, begun, modified_on, until, result, refused)
select {kept_at_an_end}, board, modified_on, {now}, {now} + keep, result, refused
from json_table(convert(:outcomes using utf8mb4), '$[*]' columns (
    uuid_ varchar(64) {collated} path '$[0]', keep bigint path '$[1]',
    refused longtext {utf8} path '$[2]', result longtext {utf8} path '$[3]'
)) as given
straight_join {jobs} force index (`{prefix}_uuid`) on uuid = uuid_ and board = :board
where {ends}
for update;
if row_count() <> :kept then
    signal sqlstate '23000' set mysql_errno = {duplicate}, message_text = 'not all of these claims end';
end if;

-- name: ends
concat(uuid, ' ', token) in (:claims) and who is not null
    and (state = 'UNCLAIMED' or state = 'CLAIMED' and lock_until > {instant})
    and (key_until is null or key_until <= {now})

-- name: renew_locked
-- Locks those of these claims that live, each given as "uuid token". It passes over the jobs that others hold.
select json_array('', id, uuid, token)
from {jobs} force index (`{prefix}_uuid`)
where uuid in (:uuids) and board = :board and concat(uuid, ' ', token) in (:claims) and keeper = :handle
    and state = 'CLAIMED' and lock_until > {now}
for update skip locked

-- name: renew
update {jobs} force index (primary) set lock_until = {now} + :ttl, tag = tag + 1 where id in (:ids)

-- ==================================================================================================================
-- Reading, where the text of common.sql will not do
-- ==================================================================================================================

-- name: read_free_locked
-- The first of these jobs that are as they were read, and that no other transaction holds. They are given in serving
-- order: if it sorted them, it would lock them all.
select {record}, {jobs}.tag
from {versions}
straight_join {jobs} force index (primary) on {jobs}.id = wanted.id
where {jobs}.tag = wanted.tag
limit :limit
for update skip locked

-- name: ready_since
-- From a starting point on.
select {record}, {jobs}.tag
from (
    select id, priority from (
        {ones?} {returned?}
    ) as of_each
    order by priority, id
    limit :some
) as first
straight_join {jobs} force index (primary) on {jobs}.id = first.id
where {jobs}.board = :board and {jobs}.state = 'UNCLAIMED'

-- name: names
-- The next name of the jobs that can be claimed. Asked for more names at once, the optimiser reads all of the jobs.
select name from {jobs} force index (`{prefix}_by_name`)
where board = :board and state = 'UNCLAIMED' and name > :after
order by name
limit 1

-- name: count_of_name
-- The optimiser would walk along all names for each of them.
select count(*) from (
    select 1 from {jobs} force index (`{prefix}_by_name`)
    where board = :board and state = 'UNCLAIMED' and name = :name
    limit :most
) as of_name

-- name: first_posts
-- The first post of the next priority of a name.
select priority, created_on from {jobs} force index (`{prefix}_by_name`)
where board = :board and state = 'UNCLAIMED' and name = :name and priority > :priority
order by {in_names}
limit 1

-- name: not_full
-- Neither names nor groups have line feeds.
and (job_group is null or concat(name, char(10), job_group) not in (:full))

-- ==================================================================================================================
-- Writing, where the text of common.sql will not do
-- ==================================================================================================================

-- name: answer_first
insert into {answers} (handle, slot, `call`, attempt, answer, stamp)
values (:handle, :slot, :call, :attempt, :answer, {now})

-- name: side_version
-- It stays so until the end of the transaction.
select version from {sides} where board = :board and kind = :kind and place = :place lock in share mode

-- name: jobs_delete
-- The rows come first, as in jobs_update.
delete j
from json_table(:gone, '$[*]' columns (id bigint path '$.id', was bigint path '$.was')) as c
straight_join {jobs} as j force index (primary) on j.id = c.id
where j.tag = c.was

-- name: returned_now
-- When a job came back: looks from a starting point find it by that.
if(c.state = 'UNCLAIMED', {instant}, null)

-- name: woken
-- When a lease or a delay ends, and never before the statement: see starts.py.
if(c.wake_at < {instant}, {instant}, c.wake_at)

-- name: jobs_update
-- The rows come first, so that each job is found by its id. The spare room goes to what a claim adds: see tables.py.
update json_table(:rows, '$[*]' columns (
    {change}
)) as c
straight_join {jobs} as j force index (primary) on j.id = c.id
set {changed}, j.returned = {returned_now}, j.spare = '', j.tag = j.tag + 1
where j.tag = c.was

-- name: commit
-- A whole commit: changes and deletes jobs, each if it has the tag that was read, and stores the answer of the call. It
-- fails where a job, the gate or the slot is not as it was read.
begin not atomic
    declare l_gate bigint;
    update {answers}
    set `call` = :call, attempt = :attempt, answer = :answer,
        stamp = case when stamp < {now} - {stamp_step} then {now} else stamp end
    where handle = :handle and slot = :slot and `call` = :was_call and attempt = :was_attempt;
    if row_count() = 0 then
        insert into {answers} (handle, slot, `call`, attempt, answer, stamp)
        values (:handle, :slot, :call, :attempt, :answer, {now});
    end if;
    {changes?}
    {gate_is?}
    commit;
end

-- name: gate_is
-- set_limit and pause wait for those who have locked the gate. So jobs are locked first: their rows may be a caller's.
select version into l_gate from {sides} where board = :board and {gate} lock in share mode;
if not l_gate <=> :gate then
    signal sqlstate '23000' set mysql_errno = {duplicate}, message_text = 'the gate has changed';
end if;

-- name: commit_changed
{jobs_update};
if row_count() <> :changed then
    signal sqlstate '23000' set mysql_errno = {duplicate}, message_text = 'a job has changed';
end if;

-- name: commit_gone
{jobs_delete};
if row_count() <> :deleted then
    signal sqlstate '23000' set mysql_errno = {duplicate}, message_text = 'a job has changed';
end if;

-- name: jobs_replace
-- With what another post brings.
update json_table(:rows, '$[*]' columns (
    {change}, {replacement}
)) as c
straight_join {jobs} as j force index (primary) on j.id = c.id
set {changed}, {replaced}, j.returned = {returned_now}, j.spare = '', j.tag = j.tag + 1
where j.tag = c.was

-- name: jobs_insert
-- In the order of the rows, which is that of their ids. Fails where a uuid or a key is taken.
insert into {jobs} ({inserted}, board)
values :rows

-- name: jobs_insert_row
({inserted_values}, :board)

-- name: clock_behind_keys
-- Waits for the jobs that have one of these keys, and then reads the clock. An insert that waits for a key would have
-- others wait that insert something next to the key in its index, as all jobs without a key may be.
(select {jobs}.live_key, null {of_keys} for update)
union all
select null, {instant}

-- name: of_keys
-- The jobs that have one of these keys. Each is looked up by itself: for a list of keys that is long beside the table,
-- MariaDB 11.8 reads all jobs of the board, and a statement that locks waits for all of them.
from json_table(:keys, '$[*]' columns (live_key varchar({most_text}) {collated} path '$')) as wanted
straight_join {jobs} {by_key} on board = :board and {jobs}.live_key = wanted.live_key

-- name: holders_locked
select {jobs}.live_key, uuid, {jobs}.id, tag {of_keys} for update

-- name: sides_locked
-- Looked up each by itself, as jobs are by their keys, and in order.
select {sides}.kind, `key`, value, until, version, {now}
from json_table(:kinds, '$[*]' columns (kind varchar(16) {collated} path '$')) as kinds
straight_join json_table(:places, '$[*]' columns (place varchar(64) {collated} path '$')) as places
straight_join {sides} {by_primary} on board = :board and {sides}.kind = kinds.kind and {sides}.place = places.place
for update

-- name: lockable_make
-- A row without a value, so that there is one to be locked.
insert into {sides} (board, kind, place, `key`, value, until, version)
values (:board, :kind, :place, :key, null, null, :version)
on duplicate key update version = version

-- name: side_insert
insert into {sides} (board, kind, place, `key`, value, until, version)
values (:board, :kind, :place, :key, :value, coalesce(:until, {now} + :ttl), :version)

-- name: side_update
update {sides}
set value = :value, until = coalesce(:until, {now} + :ttl), version = :version
where board = :board and kind = :kind and place = :place and version = :was

-- name: key_keep
-- A key that outlives its job, until its window ends.
insert into {sides} (board, kind, place, `key`, value, until, version)
values (:board, 'key', :place, :key, :value, :until, :version)
on duplicate key update value = values(value), until = values(until), version = values(version)

-- name: outcome_insert
insert into {outcomes} ({outcome_columns}, board)
values ({outcome_values}, :board)

-- ==================================================================================================================
-- Transactions of callers, see callers.py
-- ==================================================================================================================

-- name: place
-- The place of the board's tables. Above its lowest 24 bits, which count, uuid_short() has the second of the server's
-- start.
select concat_ws('/', uuid_short() >> 24, @@hostname, @@port, database())

-- ==================================================================================================================
-- Limits: the locks of scopes, see scopes.py
-- ==================================================================================================================

-- name: scopes_locked
-- In one order, so that two transactions never wait for each other. MySQL has no limit of the wait in a statement.
/*M! set statement innodb_lock_wait_timeout = :seconds for */
select {sides}.place {of_scopes} for update

-- name: scopes_free_locked
select {sides}.place {of_scopes} for update skip locked

-- name: of_scopes
-- Looked up each by itself, as jobs are by their keys, and in the order of the list.
from json_table(:places, '$[*]' columns (place varchar(64) {collated} path '$')) as wanted
straight_join {sides} {by_primary} on board = :board and kind = 'scope' and {sides}.place = wanted.place

-- name: parts_locked_all
-- Of each scope the first part of its lock that is free.
{ones?}

-- name: parts_locked
(
    select place
    from {sides} force index (primary)
    where board = :board and kind = 'scope' and place in (:one)
    order by place
    limit 1
    for update skip locked
)

-- name: scopes_make
-- A row without a value is there to be locked. The tidying drops it after an hour, and the next call makes it again.
insert ignore into {sides} (board, kind, place, `key`, until, version)
select :board, 'scope', part.place, part.name, {now} + {hour}, :version
from json_table(:parts, '$[*]' columns (
    place varchar(64) {utf8} path '$.place', name longtext {utf8} path '$.key'
)) as part
order by part.place

-- name: groups
-- A loose scan of the index by groups, which finds each group in one step: so the cost is in the number of groups, and
-- not in that of their jobs. BETWEEN is "=" here, in a form that leaves the optimiser this scan. Of each group, the
-- place of its first job that can be claimed. Jobs without a group are in one that is NULL.
select name, job_group, first
from (
    select name, job_group, (
        select priority * {rank_step} + id
        from {jobs} force index ({prefix}_by_group)
        where board = :board and state = 'UNCLAIMED' and {jobs}.name = grouped.name
            and {jobs}.job_group <=> grouped.job_group and version <= :readable
        order by priority, id
        limit 1
    ) as first
    from (
        select name, job_group
        from {jobs} force index ({prefix}_by_group)
        where board between :board and :board
        group by board, name, job_group
    ) as grouped
    where true {also?}
) as firsts
where first is not null
order by first
limit :limit

-- name: ready_of_group_all
-- The first jobs of each group are found by their ids first: to read whole rows in each part takes four times as long.
select {record}, {jobs}.tag
from (
    select id, priority from (
        {ones?}
    ) as of_each
    order by priority, id
    limit :limit
) as first
straight_join {jobs} force index (primary) on {jobs}.id = first.id

-- name: ready_of_group
(
    select id, priority
    from {jobs} {by_group}
    where board = :board and state = 'UNCLAIMED' and name = :one_name and job_group = :one_group
        and version <= :readable
    order by priority, id
    limit :limit
)

-- name: ready_of_none
(
    select id, priority
    from {jobs} {by_group}
    where board = :board and state = 'UNCLAIMED' and name = :one_name and job_group is null and version <= :readable
    order by priority, id
    limit :limit
)

-- ==================================================================================================================
-- The doctor, see doctor.py
-- ==================================================================================================================

-- name: settings
-- What may lose acknowledged data in a crash.
select 'innodb_flush_log_at_trx_commit', @@innodb_flush_log_at_trx_commit

-- name: open_transactions
-- What it is, whose, its state, for how many seconds, and what ends it.
select concat('session ', t.trx_mysql_thread_id), concat(p.user, '@', p.host), p.command,
    timestampdiff(second, t.trx_started, now()), concat('KILL ', t.trx_mysql_thread_id)
from information_schema.innodb_trx as t
join information_schema.processlist as p on p.id = t.trx_mysql_thread_id

-- name: behind_gone
-- A comparison of rows finds no place in an index here.
and (gone_on < :place or gone_on = :place and id < :id)

-- name: behind_lapsed
and ({ended_on} < :place or {ended_on} = :place and id < :id)

-- name: next_board
-- The index of live jobs has the trashed ones, too.
select board from {jobs} {by_serving} where board > :after order by board, gone_on, priority, id limit 1
