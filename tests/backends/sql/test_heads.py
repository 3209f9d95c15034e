"""Takes on SQLite and MariaDB past jobs of full groups: by a walk, by the first jobs of each group, and
whatever was met before."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard import codec
from jobboard.backends.sql.looking import Candidates, TakeRequest
from jobboard.board import JobBoard
from jobboard.engine import LimitScope
from jobboard.job import Job, Posting
from jobboard.primitives import Limit
from jobboard.testing import eventually
from jobboard.testing.conformance.support import take, uuids
from tests.backends.sql.test_plans import _instructions
from tests.full import FULL

pytestmark = pytest.mark.backends("sqlite", "mariadb")
sqlite = pytest.mark.backends("sqlite")

PREFIXES = (f"heads{n}" for n in itertools.count())
"""Statements are made once for all tables of a prefix: each test has its own."""

MakeSmall = Callable[..., list[JobBoard]]


@pytest.fixture
def make_small(make_board: Callable[..., JobBoard], monkeypatch: pytest.MonkeyPatch) -> MakeSmall:
    """Handles on a board whose walks end after a few jobs, and which compares no more groups than so many."""

    def make(far: int = 3, most: int = 5000, handles: int = 1) -> list[JobBoard]:
        small = {
            ("heads", "sqlite.shortcuts"): ("FAR", far),
            ("heads", "sqlite.heads", "mariadb.heads", "mariadb.openings"): ("MOST", most),
            ("sqlite.crowds",): ("AFRESH", 60),
            ("mariadb.openings",): ("NEAR", (far, far + 1)),
        }
        for modules, (name, value) in small.items():
            for module in modules:
                monkeypatch.setattr(f"jobboard.backends.sql.{module}.{name}", value)
        for name, value in (("CROWDED", 60), ("MORE", far + 2)):
            monkeypatch.setattr(f"jobboard.backends.sql.mariadb.openings.{name}", value)
        prefix = next(PREFIXES)
        return [make_board(table=prefix) for _ in range(handles)]

    return make


@pytest.fixture
def small(make_small: MakeSmall) -> JobBoard:
    return make_small()[0]


class Rehearsal:
    """Random acts of two handles; each take is to find what the posts, the limits and the claims before it tell."""

    def __init__(self, boards: list[JobBoard], seed: int) -> None:
        self.boards, self.dice = boards, random.Random(seed)
        self.ready: list[Job] = []
        self.held: list[tuple[JobBoard, Job]] = []
        self.limits: dict[tuple[str, str], int] = {}
        self.taken = self.beside = 0

    @property
    def board(self) -> JobBoard:
        return self.dice.choice(self.boards)

    def scopes(self, job: Job) -> Iterator[tuple[str, ...]]:
        if (job.name, "name") in self.limits:
            yield (job.name,)
        if (job.name, "group") in self.limits and job.group is not None:
            yield job.name, job.group

    def expected(self, limit: int, names: list[str] | None) -> list[Job]:
        inside = Counter(scope for _, job in self.held for scope in self.scopes(job))
        found: list[Job] = []
        for job in sorted(self.ready):
            scopes = list(self.scopes(job))
            room = all(inside[scope] < self.limits[job.name, ("name", "group")[len(scope) - 1]] for scope in scopes)
            if (names is None or job.name in names) and room and len(found) < limit:
                found.append(job)
                inside.update(scopes)
            elif not room and len(found) < limit:
                self.beside += 1
        return found

    def take(self) -> None:
        limit = self.dice.choice((1, 1, 1, 1, 4))
        names = self.dice.choice((None, None, ["mail"], ["mail", "resize"]))
        expected, board = self.expected(limit, names), self.board
        if limit == 1:
            found = [job] if (job := board.claim_next("anna", names=names)) else []
        else:
            found = board.claim_many("anna", limit, names=names)
        # Of a batch, claims that have ended and still are on a list may keep some out.
        assert uuids(found)[:1] == uuids(expected)[:1], (limit, names)
        for job in found:
            self.ready = [other for other in self.ready if other != job]
            self.held.append((board, job))
        self.taken += len(found)

    def post(self) -> None:
        dice = self.dice
        postings = [
            Posting(
                dice.choice(("mail", "mail", "resize", "print")),
                group=dice.choice((None, "big", "big", "big", "big", "a", "b", "c")),
                priority=dice.choice((0, 0, 0, 0, 50)),
            )
            for _ in range(dice.choice((1, 1, 6)))
        ]
        self.ready += self.board.post_many(postings)

    def end(self) -> None:
        if not self.held:
            return
        board, job = self.held.pop(self.dice.randrange(len(self.held)))
        if self.dice.random() < 0.4:
            self.dice.choice((lambda: board.abandon(job, "anna"), lambda: board.release(job)))()
            self.ready.append(job)
        else:
            board.consume(job, "anna")

    def limit(self) -> None:
        name, per = self.dice.choice((("mail", "group"), ("mail", "group"), ("resize", "group"), ("print", "name")))
        number = self.dice.choice((None, 1, 1, 1, 2))
        if number is None:
            if self.limits.pop((name, per), None):
                self.board.remove_limit(name, per)
            return
        self.limits[name, per] = number
        self.board.set_limit(name, concurrency=number, per=per)

    def act(self) -> None:
        self.dice.choices((self.take, self.post, self.end, self.limit), (8, 4, 4, 0.3))[0]()


@pytest.mark.parametrize("far", [2, 1000])
@pytest.mark.parametrize("most", [3, 5000])
@pytest.mark.parametrize("seed", range(4 if FULL else 2))
def test_what_is_taken_is_the_first_that_has_room(make_small: MakeSmall, far: int, most: int, seed: int) -> None:
    rehearsal = Rehearsal(make_small(far, most, handles=2), seed)
    rehearsal.limits["mail", "group"] = 1
    rehearsal.board.set_limit("mail", concurrency=1, per="group")
    for _ in range(250):
        rehearsal.act()
    assert rehearsal.taken > 50
    assert rehearsal.beside > 100


def crowd(board: JobBoard, number: int = 20) -> tuple[Job, list[Job]]:
    """The claim that fills a group, and its other jobs."""
    board.set_limit("mail", concurrency=1, per="group")
    first, *others = board.post_many([Posting("mail", group="big")] * number)
    held = take(board)
    assert held == first
    return held, others


@sqlite
@pytest.mark.parametrize("names", [None, ["mail"]])
@pytest.mark.parametrize("group", [None, "small"])
def test_past_all_that_a_walk_passes(small: JobBoard, names: list[str] | None, group: str | None, spy: Any) -> None:
    crowd(small)
    later = small.post_many([Posting("mail", group=group), Posting("mail", group="other")])
    assert take(small, names=names) == later[0]
    with spy(small) as seen:
        assert take(small, names=names) == later[1]
    # By a transaction of its own: what was met is looked at, the first of each group, and one job.
    assert [text.split()[0] for text in seen.texts if "ROLLBACK" in text] == []
    assert sum(text.startswith("WITH RECURSIVE lane") for text in seen.texts) == 1


@sqlite
def test_a_name_that_is_full(small: JobBoard, spy: Any) -> None:
    small.set_limit("mail", concurrency=1)
    small.post_many([Posting("mail"), Posting("mail", group="a")] * 5)
    take(small)
    later = small.post_many([Posting("resize"), Posting("resize", group="a"), Posting("print")])
    assert [take(small) for _ in range(2)] == later[:2]
    with spy(small) as seen:
        assert take(small) == later[2]
    assert not any("ROLLBACK" in text for text in seen.texts)
    assert small.claim_next("anna") is None
    assert small.claim_next("anna", names=["mail"]) is None


def test_what_was_full_opens(make_small: MakeSmall) -> None:
    """By another handle: what this one has met says nothing of now."""
    board, other = make_small(handles=2)
    held, (second, third, *_) = crowd(board)
    later = board.post_many([Posting("mail", group="a"), Posting("mail", group="b")])
    assert take(board) == later[0]
    other.release(other.get(held.uuid))
    assert take(board) == held
    other.consume(other.get(held.uuid), "anna")
    assert take(board) == second
    board.set_limit("mail", concurrency=2, per="group")
    assert take(board) == third
    assert take(board) == later[1]


def test_what_was_full_opens_by_a_lapse(small: JobBoard) -> None:
    small.set_limit("mail", concurrency=1, per="group")
    small.post_many([Posting("mail", group="big")] * 9)
    held = take(small)
    small.post_many([Posting("mail", group=f"{n}") for n in range(9)])
    assert take(small).group == "0"
    small.extend(held, "anna", 0.05)
    eventually(lambda: small.get(held.uuid).state == "UNCLAIMED")
    assert take(small) == held


def test_a_claim_that_is_no_more_is_not_counted(make_small: MakeSmall) -> None:
    """Its list still tells of it: who has not made a claim leaves it there."""
    board, other = make_small(handles=2)
    held, others = crowd(board)
    small = board.post_many([Posting("mail", group="small"), Posting("mail")])
    assert take(board) == small[0]
    other.trash(other.get(held.uuid), "anna")
    assert take(board) == others[0]


@sqlite
def test_between_two_tries_the_group_opens(make_small: MakeSmall, spy: Any) -> None:
    """The one that has met it begins anew, and looks at it again."""
    board, other = make_small(handles=2)
    held, others = crowd(other)
    small = board.post_many([Posting("mail", group="small"), Posting("mail")])
    assert take(board) == small[0]
    board.engine._shortcuts._crowd._met.clear()
    begun: list[str] = []

    def before(text: str) -> None:
        if text.startswith("BEGIN"):
            begun.append(text)
            if len(begun) == 2:
                other.consume(held, "anna")

    with spy(board, before):
        assert take(board) == others[0]
    assert len(begun) == 2


def test_more_groups_than_are_compared(make_small: MakeSmall) -> None:
    [board] = make_small(far=3, most=4)
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("mail", group=f"g{n % 8}") for n in range(40)])
    assert len({take(board).group for _ in range(8)}) == 8
    assert board.claim_next("anna") is None
    later = board.post("mail", group="z")
    alone = board.post("mail")
    assert [take(board), take(board)] == [later, alone]


@pytest.mark.parametrize("names", [["resize"], ["resize", "print"]])
@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("big", [3, 12])
def test_beside_more_groups_of_another_name(make_small: MakeSmall, names: list[str], limit: int, big: int) -> None:
    """One that comes first in the index of groups."""
    [board] = make_small(far=3, most=4)
    board.set_limit("resize", concurrency=1, per="group")
    board.post_many([Posting("mail", group=f"g{n}") for n in range(8)])
    board.post_many([Posting("resize", group="big")] * big)
    take(board, names=["resize"])
    small, _ = board.post_many([Posting("resize", group="small")] * 2)
    assert board.claim_many("anna", limit, names=names) == [small]


@pytest.mark.parametrize("names", [None, ["mail"], ["mail", "resize"]])
@pytest.mark.parametrize("limit", [1, 3])
def test_list_after_list(make_small: MakeSmall, names: list[str] | None, limit: int) -> None:
    """As where others were quicker at all that one list has."""
    [board] = make_small(far=4)
    groups = ("big", "a", None, "b", "big", "b", "a", "big", "big", "big", "big", "big")
    names_of = itertools.cycle(["mail", "mail", "mail", "resize", "print"])
    posted = [board.post(next(names_of), group=each, priority=dear) for dear in (0, 50, 0) for each in groups]
    store = board.engine.store
    full = [("mail", "big"), ("resize", "big")]
    request = TakeRequest({}, limit, codec.VERSION, names, None, full=full)
    lists = Candidates(store.statements).lists(request, lambda each, params: store.query(each, **params))
    wanted = [
        job for job in sorted(posted) if (names is None or job.name in names) and (job.name, job.group) not in full
    ]
    found = list(itertools.islice(lists, len(posted)))
    assert [id_ for ids in found for id_ in ids] == [job.sequence for job in wanted]
    assert all(len(ids) == limit for ids in found[:-2])


@sqlite
def test_what_no_list_tells_to_be_full(small: JobBoard) -> None:
    crowd = small.engine._shortcuts._crowd
    assert not crowd.meet([LimitScope("mail", Limit("mail", rate=(1, 9.0)))], 1)
    assert crowd.meet([LimitScope("mail", Limit("mail", concurrency=1))], 1)


@sqlite
@pytest.mark.parametrize("names", [None, ["mail"]])
def test_what_a_take_costs_behind_a_full_group(make_small: MakeSmall, names: list[str] | None) -> None:
    """As much behind 4,000 of its jobs as behind 500; also where some of what comes then has no group."""
    [board] = make_small(far=100)
    link = board.engine.store.links.run(lambda link: link)
    crowd(board, 500)
    board.post_many([Posting("mail", group=group) for n in range(12) for group in (f"g{n}", None)])
    board.claim_many("anna", 10, names=names)
    spent = []
    for _ in range(2):
        take(board, names=names)
        take(board, names=names)
        with _instructions(link, "") as steps:
            take(board, names=names)
        spent.append(steps())
        # In front of the others.
        board.post_many([Posting("mail", group="big", priority="HIGH")] * 3500)
    assert spent[1] < 1.2 * spent[0]


@sqlite
def test_by_which_indexes_the_first_jobs_are_found(small: JobBoard) -> None:
    """By those of its group, none of whose rows it reads; and those that have no group by their own."""
    heads = small.engine._shortcuts._heads
    heads.first(1, [], [], {"p_readable": 1}, lambda *_: [])
    link = small.engine.store.links.run(lambda link: link)
    params = {"p_board": small.name, "p_readable": 1, "p_names": "[]", "p_full": "[]"}
    text, values = heads._made[1, False].compiled(link.dialect, params)
    link.cursor.execute(f"EXPLAIN QUERY PLAN {text}", values)
    plan = [row[3].split("(board")[0] for row in link.cursor.fetchall() if "SEARCH" in row[3]]
    prefix = small.table.name
    covering = f"SEARCH {prefix} USING COVERING INDEX {prefix}_by_group "
    assert plan == [covering, covering, f"SEARCH {prefix} USING INDEX {prefix}_by_name ", covering]
