"""The plans of the databases and the rows that they read: no statement walks the table."""

import contextlib
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard import codec
from jobboard.backends.sql import starts
from jobboard.board import JobBoard
from jobboard.engine import Rules
from jobboard.primitives import Limit
from jobboard.testing import eventually
from tests.backends.sql.conftest import statements_in

# To fill a board takes longer than all of these tests on it.
pytestmark = [pytest.mark.backends("sqlite", "postgresql", "mariadb"), pytest.mark.xdist_group("plans")]

ROWS = 24_000


@pytest.fixture(scope="session")
def filled(
    database_uri: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], JobBoard]]:
    """The full board of a backend. Each is filled once, in whatever order the tests of several backends run."""
    with contextlib.ExitStack() as stack:

        @functools.cache
        def board(backend: str) -> JobBoard:
            sqlite = f"sqlite:///{tmp_path_factory.mktemp('plans')}/board.db?synchronous=normal"
            uri = sqlite if backend == "sqlite" else database_uri(backend)
            board = jobboard.fetch("plans", {"board": uri, "table": "plans", "claim_ttl": 3600})
            stack.callback(board.close)
            board.connect()
            fill(board, backend)
            return board

        yield board


@pytest.fixture
def full(backend: str, filled: Callable[[str], JobBoard]) -> JobBoard:
    """A board with a third each of its jobs ready, claimed and delayed."""
    return filled(backend)


def fill(board: JobBoard, backend: str) -> None:
    third = ROWS // 3
    for kind in range(3):
        drafts = [
            {"name": f"n{i % 40}", "priority": (-50, 0, 50, 99, -7)[i % 5], "delay": 3600 if kind == 1 else None}
            for i in range(third)
        ]
        board.post_many(drafts)
        if kind == 0:
            for _ in range(third // 100):
                board.claim_many("anna", 100, expiry=3600)
    # SQLite has no statistics unless somebody asks for them. What PostgreSQL's vacuum reads, now or by itself later, is
    # not to be counted among what a test reads.
    analyze = {
        "postgresql": (
            "ALTER TABLE plans SET (autovacuum_enabled = false)",
            "VACUUM ANALYZE plans",
            "SELECT pg_stat_force_next_flush()",
        ),
        "mariadb": ("ANALYZE TABLE plans",),
    }
    with board.engine.store.links.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in analyze.get(backend, ()):
            connection.exec_driver_sql(statement)


def plans(board: JobBoard, call: Any, spy: Any) -> list[str]:
    """The plan of each statement on the jobs' table that ``call`` runs, as text."""
    explain = {"sqlite": "EXPLAIN QUERY PLAN ", "postgresql": "EXPLAIN "}.get(
        board.engine.store.links.engine.dialect.name, "EXPLAIN FORMAT=JSON "
    )
    found: list[str] = []
    with spy(board) as seen:
        execute = seen.execute

        def explained(text: str, *params: Any) -> Any:
            for each in statements_in(text):
                # What is local to a compound statement is unknown outside of it.
                alone = re.sub(r"^(?:ELSE)?IF .* THEN\n|\bINTO l_\w+(, l_\w+)*\s*$", "", each)
                statement = re.sub(r"\bl_\w+", "1", alone.replace("l_ids", "'[1]'"))
                told = statement.lstrip().startswith(("INSERT", "EXPLAIN", "ANALYZE"))
                if re.search(r"\bplans\b", statement) and not told:
                    seen.cursor.execute(explain + statement, *params)
                    found.append("\n".join(str(row) for row in seen.cursor.fetchall()))
            if "SET TRANSACTION" in text:
                # It begins one, as which those plans would count.
                seen.cursor.execute("ROLLBACK")
            return execute(text, *params)

        seen.execute = explained
        call()
    assert found
    return found


CALLS: dict[str, Callable[[Any], Any]] = {
    "claim_next": lambda b: b.consume(b.claim_next("anna"), "anna"),
    "claim_many": lambda b: b.consume_many(b.claim_many("anna", 100), "anna"),
    "by name": lambda b: b.consume(b.claim_next("anna", names=["n7"]), "anna"),
    "by names": lambda b: b.consume(b.claim_next("anna", names=["n7", "n8", "n9"]), "anna"),
    "by many names": lambda b: b.claim_next("anna", names=[f"n{i}" for i in range(40)], where=b.table.c.attempts < 99),
    "claim and abandon": lambda b: b.abandon(_claimed(b), "anna"),
    "extend": lambda b: b.extend(_claimed(b), "anna"),
    "release": lambda b: b.release(_claimed(b)),
    "heartbeat": lambda b: (_claimed(b), b.claims.beat()),
    "sweep": lambda b: (_lapsed(b), _claimed(b)),
    "peek": lambda b: b.engine.peek(["n3"]),
    "read": lambda b: b.engine.read([f"no-such-{i}" for i in range(100)]),
    "siblings": lambda b: b.siblings(),
    "first page": lambda b: next(iter(b.iterjobs())),
    "trash": lambda b: list(b.trashed()),
    "page of a search": lambda b: _two_pages(b, names=["n3"], error="x"),
    "claims": lambda b: _two_pages(b, states=["CLAIMED"]),
    "delayed": lambda b: _two_pages(b, states=["SCHEDULED"]),
    "trashed": lambda b: b.find_page(50, states=["TRASHED"], group="g", at_most=900),
    "owner": lambda b: _two_pages(b, owner="anna", where=b.table.c.attempts < 99),
    "names": lambda b: b.names(at_most=500),
    "capped stats": lambda b: b.stats(cap=500),
    "nothing": lambda b: b.claim_next("anna", names=["no such name"]),
}


def _claimed(board: JobBoard) -> Any:
    job = board.claim_next("anna")
    assert job is not None
    return job


def _two_pages(board: JobBoard, **conditions: Any) -> None:
    page = board.find_page(50, at_most=900, **conditions)
    assert page.after is not None
    board.find_page(50, at_most=900, after=page.after, **conditions)


def _lapsed(board: JobBoard) -> None:
    job = board.claim_next("anna", expiry=0.01)
    assert job is not None
    eventually(lambda: board.find_owner(job) is None)


INDEXES = {
    "claim_next": "plans_ready",
    "by name": "plans_by_name",
    "claims": "plans_wake",
    "delayed": "plans_wake",
    "owner": "plans_wake",
    "names": "plans_by_name",
}
"""Where some calls find their jobs."""


@pytest.mark.rule("A statement of a verb walks no table, and is found by an index.")
def test_no_statement_walks_the_table(full: JobBoard, spy: Any) -> None:
    for name, call in CALLS.items():
        found = plans(full, functools.partial(call, full), spy)
        assert [plan for plan in found if _walks(full, plan)] == [], name
        index = INDEXES.get(name, "plans")
        assert any(re.search(rf"\b{index}\b", plan) for plan in found), name


def _walks(board: JobBoard, plan: str) -> bool:
    name = board.engine.store.links.engine.dialect.name
    if name == "sqlite":
        # A part of a statement may have the name of the table, for the conditions of callers.
        parts = len(re.findall("(?:CO-ROUTINE|MATERIALIZE) plans", plan))
        return len(re.findall("SCAN plans(?! VIRTUAL)", plan)) > parts
    if name == "postgresql":
        # The small tables of answers and of parameters may be read as a whole. A few first jobs may be sorted: of each
        # name, and from a starting point on of each priority.
        sorted_rows = map(int, re.findall(r"(?<!Incremental )Sort +\(cost=\S+ rows=(\d+)", plan))
        return bool(re.search(r"Seq Scan on plans\b(?!_)", plan)) or max(sorted_rows, default=0) > 1000
    return bool(re.search(r'"table_name": "plans",\s+"access_type": "(ALL|index)"', plan.replace("\\n", "\n")))


TRIPS = {
    "post": {"postgresql": 1, "sqlite": 6, "mariadb": 1},
    "claim": {"postgresql": 1, "sqlite": 4, "mariadb": 2},
    "consume": {"postgresql": 1, "sqlite": 4, "mariadb": 1},
}
"""The statements that each verb sends. SQLite's begin and commit cost what a statement costs."""


@pytest.mark.rule("A take is one request on PostgreSQL and two on MariaDB, and the rules may change before its claim.")
def test_how_many_statements_a_verb_takes(make_board: Callable[..., JobBoard], backend: str, spy: Any) -> None:
    """The first ones: now and then a busy board looks for where to begin a look."""
    board = make_board()
    sent = []
    with spy(board) as seen:
        board.post("n1")
        sent.append(len(seen.texts))
        job = _claimed(board)
        sent.append(len(seen.texts))
        board.consume(job, "anna")
        sent.append(len(seen.texts))
    post, claim, consume = (TRIPS[verb][backend] for verb in ("post", "claim", "consume"))
    assert sent == [post, post + claim, post + claim + consume]


@pytest.mark.rule("The next event is the first entry of its index.")
def test_a_claim_reads_a_handful_of_rows(full: JobBoard) -> None:
    """A plan that names an index may still read all of it: what counts is what is read."""
    read = _measured(full)
    with read() as count:
        full.consume(_claimed(full), "anna")
        peeked = full.engine.peek(None)
    assert peeked.any
    assert 0 < count() < 1000


@pytest.mark.rule("A late page is found without a walk.")
def test_a_late_page_is_found_without_a_walk(full: JobBoard) -> None:
    read = _measured(full)
    with read() as first:
        page = full.engine.page(None, 50, None, None)
    spent = first()
    *_, last = itertools.islice(full.iterjobs(), ROWS // 2)
    with read() as late:
        assert len(full.engine.page(last.record, 50, None, None)) == len(page) == 50
    # A walk to the middle of the table would cost 240 times as much.
    assert late() < 20 * spent


@pytest.mark.rule("A page of a search reads no more rows than it may look at, wherever the page begins.")
@pytest.mark.parametrize("state", [None, "CLAIMED"])
def test_a_page_of_a_search_reads_what_it_may_look_at(full: JobBoard, state: str | None) -> None:
    conditions: dict[str, Any] = {"states": None if state is None else [state], "group": "no such group"}
    read = _measured(full)
    with read() as whole:
        assert full.find_page(50, at_most=6000, **conditions).looked == 6000
    most, after = whole() / 3, None
    for _ in range(4):
        with read() as count:
            page = full.find_page(50, at_most=500, after=after, **conditions)
        assert page.looked == 500
        assert 0 < count() < most
        after = page.after


PASSED = 2000
"""The number of jobs that a search has to pass over."""


@pytest.mark.rule("A page of a search passes over no job that it does not count.")
def test_a_page_of_a_search_counts_the_jobs_that_it_passes(make_board: Callable[..., JobBoard]) -> None:
    board = make_board(table="counted")
    read = _measured(board)

    def spent(states: list[str] | None, looked: int, after: str | None = None) -> int:
        """Return what a page reads. A further statement of a search would count all over again."""
        counts = []
        # What a vacuum has read may be reported late.
        for _ in range(3):
            with read() as count:
                page = board.find_page(50, at_most=100, states=states, after=after)
            assert page.looked == looked
            counts.append(count())
        return min(counts)

    board.post_many([{"name": "live"}] * 60)
    few = spent(None, 50)
    board.act("cancel", board.post_many([{"name": "gone", "priority": 9}] * PASSED))
    # Deletions that no vacuum has seen stay in PostgreSQL's indexes.
    _sized(board, "small")
    assert spent(None, 50) < 2 * few + 20
    # All are due at one instant, and the claim ends later.
    board.post_many([{"name": "later", "delay": 60}] * PASSED)
    held = board.claim_next("anna", expiry=3600)
    assert held is not None
    for state, looked in (("CLAIMED", 1), ("SCHEDULED", 100)):
        assert spent([state], looked) < 4 * few + 100, state
    page = board.find_page(50, at_most=100, states=["CLAIMED"])
    assert [job.uuid for job in page.jobs] == [held.uuid], "no delayed job is looked at"
    assert page.complete
    # Of one priority, and of one due time.
    for states in (None, ["SCHEDULED"]):
        after = None
        for _ in range(15):
            after = board.find_page(100, at_most=100, states=states, after=after).after
        assert spent(states, 50 if states is None else 100, after) < 4 * few + 100, states
    assert [job.uuid for job in board.find(states=["CLAIMED"])] == [held.uuid]
    assert len(list(board.find(states=["SCHEDULED"]))) == PASSED


@pytest.mark.rule("A page of a search passes over no job that it does not count.")
def test_a_page_of_the_trash_counts_overdue_jobs(make_board: Callable[..., JobBoard]) -> None:
    """Lapses that no sweep has written down are looked for among them."""
    board = make_board(table="overdue")
    gone = board.post_many([{"name": "gone"}] * 60)
    board.act("cancel", gone)
    due = board.post_many([{"name": "due", "delay": 0.01}] * 40)
    eventually(lambda: all(job.state == "UNCLAIMED" for job in due[-2:]))
    first = board.find_page(10, at_most=75, states=["TRASHED"], group="none")
    second = board.find_page(10, at_most=75, states=["TRASHED"], group="none", after=first.after)
    assert [(page.looked, page.complete) for page in (first, second)] == [(75, False), (65, True)]
    few = board.find_page(10, at_most=20, states=["TRASHED"])
    assert (len(few.jobs), few.looked) == (10, 50), "a page goes on, however many jobs are overdue"
    assert len(list(board.find(states=["TRASHED"]))) == board.error_groups().looked == 60


@pytest.mark.rule("A search ships no more jobs than its page has.")
def test_a_search_ships_what_its_page_has(full: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped, run_one = [], full.engine.store.run_one

    def counted(*args: Any, **params: Any) -> Any:
        rows = run_one(*args, **params)
        shipped.append(len(rows))
        return rows

    monkeypatch.setattr(full.engine.store, "run_one", counted)
    searches: list[dict[str, Any]] = [
        {"names": ["n3"]},
        {"states": ["UNCLAIMED"]},
        {"states": ["CLAIMED"]},
        {"where": full.table.c.token == 0},
    ]
    for conditions in searches:
        assert len(full.find_page(5, **conditions).jobs) == 5
    assert not full.find_page(5, cause="ValueError: no such …").jobs
    assert max(shipped) <= 6


@pytest.mark.rule("Names are counted along their index, whatever the number of jobs.")
def test_names_read_as_many_rows_as_they_count(full: JobBoard) -> None:
    read = _measured(full)
    with read() as count:
        names = full.names(at_most=10)
    assert len(names) == 40
    assert {each.waiting for each in names} == {10}
    assert (sum(each.running for each in names), sum(each.delayed for each in names)) == (10, 10)
    assert count() < 6000


@pytest.mark.backends("sqlite", "postgresql")
@pytest.mark.rule("One statement walks along the names of jobs.")
def test_names_take_two_statements(full: JobBoard, spy: Any) -> None:
    """MariaDB takes some for each name, as its optimiser would walk along all names for each of them."""
    with spy(full) as seen:
        assert len(full.names()) == 40
    assert len([text for text in seen.texts if "plans" in text]) == 2


def test_outcomes_are_counted_by_one_statement(make_board: Callable[..., JobBoard], spy: Any) -> None:
    board = make_board(keep_done=60)
    board.post_many([{"name": "any"}] * 3)
    board.consume_many(board.claim_many("anna", 3), "anna")
    with spy(board) as seen:
        assert sum(board.finished(2) or ()) == 3
        assert len([text for text in seen.texts if "_outcomes" in text]) == 1
        assert board.finished(2, at_most=2) is None
    assert sum(board.finished(2, at_most=3) or ()) == 3


def test_a_board_of_trashed_jobs_alone_is_a_sibling(make_board: Callable[..., JobBoard]) -> None:
    live, gone = make_board("live"), make_board("gone")
    live.post("any")
    gone.act("cancel", [gone.post("any")])
    assert {"gone", "live"} <= set(make_board("zero").siblings())
    assert "gone" in live.siblings()


def _measured(board: JobBoard) -> Callable[[], contextlib.AbstractContextManager[Callable[[], int]]]:
    """Return a function for blocks, in which it counts what the board's connection reads of the jobs. PostgreSQL would
    count the reads of a vacuum, too."""
    link = board.engine.store.links.run(lambda link: link)
    if link.dialect.name == "postgresql":
        link.cursor.execute(f"ALTER TABLE {board.table.name} SET (autovacuum_enabled = false)")
    return functools.partial(READS[link.dialect.name], link, board.table.name)


SIZED = {"postgresql": "VACUUM {}", "mariadb": "ANALYZE TABLE {}", "sqlite": "ANALYZE {}"}
"""Makes statistics. A vacuum of PostgreSQL counts rows and pages, and tells nothing of the columns."""

statistics = pytest.mark.parametrize("statistics", ["none", "of a small table"])
"""What the database knows of a table that grows later."""


def _sized(board: JobBoard, statistics: str) -> None:
    engine = board.engine.store.links.engine
    if statistics != "none":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.exec_driver_sql(SIZED[engine.dialect.name].format(board.table.name))


@pytest.mark.rule("A batch is found by its own rows, though the table has no statistics.")
@statistics
def test_a_batch_reads_its_own_rows_alone(make_board: Callable[..., JobBoard], statistics: str) -> None:
    """Whatever the database thought of its statements when the table was small."""
    board = make_board(table="fresh")
    read = _measured(board)

    def batch() -> None:
        jobs = board.claim_many("anna", 20)
        board.engine.store.renew("another handle", [(job.uuid, job.claim.token) for job in jobs], 1)
        board.consume_many(jobs[:19], "anna")
        board.release(jobs[19])
        assert len(board.engine.read([job.uuid for job in jobs])) == 20
        board.claim(jobs[19], "anna")
        board.consume(jobs[19], "anna")

    board.post_many([{"name": "resize"}] * 400)
    for _ in range(14):
        batch()
    _sized(board, statistics)
    with read() as small:
        batch()
    spent = small()
    board.post_many([{"name": "resize"}] * 4000)
    board.claim_many("bert", 100)
    with read() as grown:
        batch()
    assert grown() < 2 * spent + 400


TAKES: dict[str, Callable[[Any], Any]] = {
    "of one name": lambda b: b.claim_next("anna", names=["b"]),
    "of several": lambda b: b.claim_next("anna", names=["no such name", "b", "c"]),
    "of several by the engine": lambda b: b.claim_next("anna", names=["b", "c"], where=b.table.c.attempts < 99),
    # From here on beside rules, which stay: a full group, and then a paused name.
    "beside a full group": lambda b: b.claim_next("anna", names=["a", "b"]),
    "of any name beside a paused one": lambda b: b.claim_next("anna"),
}


@pytest.mark.rule("A take beside a paused name costs the same behind many of its jobs.")
@statistics
def test_a_take_reads_no_jobs_that_it_may_not_take(
    make_board: Callable[..., JobBoard], monkeypatch: pytest.MonkeyPatch, statistics: str
) -> None:
    """However many come first: beside a full group or a paused name, a take goes from group to group, or from name to
    name, along their index."""
    # All takes look from the beginning, as those from a starting point read some pages of each range of priorities.
    monkeypatch.setattr(starts, "EXPENSIVE", 1e12)
    board = make_board(table="passed")
    read = _measured(board)
    groups = {"a": "full", "b": "free", "c": None}
    board.post_many([{"name": name, "group": group} for name, group in groups.items() for _ in range(60)])
    board.claim_next("anna", names=["a"])

    def taken(take: str) -> int:
        def once() -> int:
            with read() as spent:
                assert TAKES[take](board).name == "b", take
            return spent()

        once()
        # On a slow machine a take may begin again, or make a survey.
        return min(once() for _ in range(3))

    def each() -> Iterator[tuple[str, int]]:
        for take in TAKES:
            if "full" in take:
                board.set_limit("a", per="group", concurrency=1)
            if "paused" in take:
                board.pause(["a"])
            yield take, taken(take)
        board.remove_limit("a")
        board.resume()

    few = dict(each())
    _sized(board, statistics)
    for name, priority in (("a", "HIGH"), ("b", "NORMAL"), ("c", "NORMAL")):
        board.post_many([{"name": name, "group": groups[name], "priority": priority}] * 4000)
    # A walk reads 300 pages of PostgreSQL, and else thousands of rows.
    assert {take: spent for take, spent in each() if spent >= few[take] + 200} == {}


STEP = {"sqlite": 30, "postgresql": 5, "mariadb": 10}
"""What a look beside full groups may read for each group that it passes, in the units of :data:`READS`."""


@statistics
def test_a_group_costs_a_look_one_step_along_the_index(
    make_board: Callable[..., JobBoard], backend: str, statistics: str
) -> None:
    board = make_board(table=f"walked_{len(statistics)}")
    read = _measured(board)
    board.post_many([{"name": "a", "group": "full"}] * 400)

    def spent(first: int, past: int) -> int:
        board.post_many([{"name": "a", "group": f"g{i:03}"} for i in range(first, past) for _ in range(3)])
        full = Rules(limits=(Limit("a", "group", 1),)).scopes("a", "full")
        with read() as count:
            look = board.engine.store.look(1, None, codec.VERSION, full=full)
        assert [stored.record.group for stored in look.ready] == ["g000"]
        return count()

    few = spent(0, 100)
    _sized(board, statistics)
    more = spent(100, 400)
    assert (more - few) / 300 < STEP[backend]


@contextlib.contextmanager
def _instructions(link: Any, table: str) -> Iterator[Callable[[], int]]:
    """SQLite counts the steps of its machine, some dozens to a row; here in fives."""
    steps: list[None] = []
    link.raw.set_progress_handler(lambda: steps.append(None), 5)
    yield lambda: len(steps)
    link.raw.set_progress_handler(None, 0)


@contextlib.contextmanager
def _rows(link: Any, table: str) -> Iterator[Callable[[], int]]:
    def reads() -> int:
        link.cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in link.cursor.fetchall())

    before = reads()
    yield lambda: reads() - before


@contextlib.contextmanager
def _buffers(link: Any, table: str) -> Iterator[Callable[[], int]]:
    """Pages of the table and its indexes, which PostgreSQL tells of only after a while unless it is asked to."""

    def pages() -> int:
        cursor = link.raw.cursor()
        cursor.execute("SELECT pg_stat_force_next_flush()")
        cursor.execute(
            "SELECT sum(heap_blks_hit + heap_blks_read + idx_blks_hit + idx_blks_read)::bigint "
            "FROM pg_statio_user_tables WHERE relname = %s",
            (table,),
        )
        return int(cursor.fetchall()[0][0])

    before = pages()
    yield lambda: pages() - before


READS = {"sqlite": _instructions, "postgresql": _buffers, "mariadb": _rows}
"""How much a connection has read."""
