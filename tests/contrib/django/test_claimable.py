"""Rows of Django's models that are acquired."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.testing import eventually
from tests.contrib.django.rows import USING, Child, Named, Numbered, Picture, Tag, acquire, left, pictures, stored

pytestmark = [pytest.mark.backends("sqlite", "postgresql", "mariadb"), pytest.mark.usefixtures("tables")]
ROOT = Path(__file__).parents[3]
SHORT = 0.05
WORKER = """
import sys, django
django.setup()
from tests.contrib.django.rows import work
work(sys.argv[1], sys.argv[2] == "stay")
"""


def test_batches_are_disjoint_and_in_order() -> None:
    made = pictures(7)
    first = acquire("anna", limit=3)
    assert first == made[:3]
    by_rank = Picture.objects.using(USING).filter(rank__gt=3).order_by("-rank")
    assert Picture.acquire("bert", by_rank, limit=2) == [made[6], made[5]]
    assert acquire("bert") == made[3:5]
    assert acquire("bert") == []
    assert [row.acquired_by for row in first] == ["anna"] * 3
    assert first[0].acquisition.token == first[0].acquired_token == 1
    assert 500 < first[0].acquisition.expires_in() <= 600
    assert first[0].acquired_until - first[0].acquired_at == datetime.timedelta(seconds=600)
    assert set(Picture.acquired("bert").using(USING)) == set(made[3:])
    assert list(Picture.acquired("Anna").using(USING)) == []


def test_a_query_set_that_finds_a_row_more_than_once() -> None:
    made = pictures(3)
    for picture in [*made, *made]:
        Tag.objects.using(USING).create(picture=picture)
    tagged = Picture.objects.using(USING).filter(tags__gt=0).order_by("-rank")
    assert tagged.count() == 6
    assert acquire("anna", tagged, limit=2) == [made[2], made[1]]
    assert acquire("bert", tagged) == [made[0]]


def test_what_is_given_back_and_what_has_lapsed_comes_again() -> None:
    [one, two, three] = pictures(3)
    assert acquire("bert", Picture.objects.filter(pk=three.pk)) == [three]
    assert acquire("anna", timeout=SHORT) == [one, two]
    assert Picture.unacquire("bert", using=USING) == 1
    eventually(lambda: Picture.unacquire_timed_out(using=USING) == 2)
    assert stored(one).acquired_by is None
    assert acquire("carl") == [one, two, three]


def test_the_arguments_of_django_scalable() -> None:
    made = pictures(4)
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=300)
    odd = Picture.objects.using(USING).filter(rank__in=[1, 3]).order_by("-rank")
    assert Picture.acquire("anna", odd, past, 1) == [made[3]]
    assert Picture.acquire(acquired_by="anna", queryset=odd, acquired_at=past, limit=5) == [made[1]]
    assert stored(made[3]).acquired_at == past
    assert len(acquire("anna", limit=2)) == 2
    assert list(Picture.acquired("anna", odd)) == [made[3], made[1]]
    kept, lost = Picture.reacquire("anna", odd, past + datetime.timedelta(seconds=100), timeout=60)
    assert (kept, lost) == ([made[3], made[1]], [])
    assert kept[0].acquisition.lost
    assert stored(made[3]).acquired_until == past + datetime.timedelta(seconds=160)
    first = odd.filter(rank=1)
    assert Picture.unacquire_timed_out(first, past + datetime.timedelta(seconds=160)) == 0
    assert Picture.unacquire_timed_out(first, now=past + datetime.timedelta(seconds=161)) == 1
    assert Picture.unacquire_timed_out(queryset=odd) == 1
    assert Picture.unacquire("anna", queryset=odd) == 0
    assert Picture.unacquire("anna", odd.model.objects.using(USING).filter(rank=0)) == 1
    assert [stored(row).acquired_by for row in made] == [None, None, "anna", None]


@pytest.mark.backends("sqlite")
def test_the_settings_of_django_scalable(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures(5)
    with override_settings(SCALABLE_ACQUIRE_LIMIT=2, SCALABLE_ACQUIRE_TIMEOUT=50):
        rows = acquire("anna")
        assert (len(rows), 40 < rows[0].acquisition.expires_in() <= 50) == (2, True)
        [row, _] = Picture.reacquire("anna", rows).kept
        assert 40 < row.acquisition.expires_in() <= 50
        monkeypatch.setattr(Picture, "acquire_limit", 1)
        monkeypatch.setattr(Picture, "acquire_timeout", 20)
        [row] = acquire("anna")
        assert row.acquisition.expires_in() <= 20
        assert len(acquire("anna", limit=2)) == 2


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("verb", ["acquired", "acquire", "reacquire", "unacquire"])
def test_a_query_set_of_others_is_refused(verb: str) -> None:
    with pytest.raises(TypeError, match="queryset is one of Named, not of Picture"):
        getattr(Picture, verb)("anna", Named.objects.all())


def test_who_was_too_slow_writes_nothing() -> None:
    pictures(2)
    slow, mine = acquire("anna", timeout=SHORT)
    Picture.unacquire("anna", [mine], using=USING)
    first = left().filter(pk=slow.pk)
    eventually(lambda: Picture.acquire("bert", first) == [slow])
    assert slow.acquisition.lost
    [taken] = Picture.reacquire("bert", using=USING).kept
    slow.done = True
    with pytest.raises(ClaimLost, match="Picture 1"):
        slow.save()
    with pytest.raises(ClaimLost):
        slow.delete()
    assert not stored(slow).done
    taken.done = True
    taken.save()
    assert stored(slow).done
    assert mine.acquisition is None
    mine.save()


def test_who_writes_after_giving_back() -> None:
    pictures(2)
    [itself, by_name] = acquire("anna")
    Picture.unacquire("anna", [itself])
    Picture.unacquire("anna", using=USING)
    assert acquire("bert") == [itself, by_name]
    itself.done = True
    itself.save()
    assert (stored(itself).done, stored(itself).acquired_by) == (True, "bert")
    with pytest.raises(ClaimLost):
        by_name.save()


def test_others_save_what_is_not_the_claims() -> None:
    [page] = pictures(1)
    [held] = acquire("anna")
    page.rank = 5
    page.save()
    found = stored(page)
    assert (found.rank, found.acquired_by, found.acquired_token) == (5, "anna", 1)
    held.done = True
    held.save()
    held.delete()


@pytest.mark.parametrize("of", ["what is held", "what was loaded"])
@pytest.mark.parametrize("idiom", ["key and state", "key alone", "key of its own"])
def test_a_copy_is_nobodys(of: str, idiom: str) -> None:
    pictures(1)
    [held] = acquire("anna")
    copy = held if of == "what is held" else stored(held)
    key = copy.pk
    copy.pk, copy._state.adding = 100 if idiom == "key of its own" else None, idiom == "key and state"
    copy.save(using=USING)
    assert copy.acquisition is None
    for row in (copy, stored(copy)):
        assert (row.acquired_by, row.acquired_at, row.acquired_until, row.acquired_token) == (None, None, None, 0)
    copy.done = True
    copy.save()
    assert acquire("bert") == [copy]
    assert Picture.objects.using(USING).get(pk=key).acquired_by == "anna"


def test_a_copy_of_a_row_that_was_lost() -> None:
    pictures(1)
    [slow] = acquire("anna", timeout=SHORT)
    eventually(lambda: acquire("bert"))
    slow.pk = None
    slow.save()
    assert not slow.acquired_by


def test_a_copy_is_no_part_of_the_claim() -> None:
    pictures(2)
    rows = [held, copy] = acquire("anna")
    copy.pk = None
    copy.save()
    assert Picture.reacquire("anna", rows, using=USING) == ([held], [copy])
    assert Picture.unacquire("anna", rows) == 1


def test_reacquiring() -> None:
    pictures(3)
    rows = acquire("anna", timeout=SHORT)
    eventually(lambda: acquire("bert", limit=1) == rows[:1])
    kept, lost = Picture.reacquire("anna", rows, timeout=60, using=USING)
    assert (kept, lost) == (rows[1:], rows[:1])
    assert [row.acquisition.lost for row in rows] == [True, False, False]
    [again, _] = Picture.reacquire("anna", using=USING).kept
    assert again.acquisition.token == 1
    with pytest.raises(JobFailure, match="by 'anna', not by 'bert'"):
        Picture.unacquire("bert", rows, using=USING)


def test_it_takes_part_in_the_transaction() -> None:
    made = pictures(2)
    with transaction.atomic(using=USING):
        [first] = acquire("anna", limit=1)
        transaction.set_rollback(True, using=USING)
    assert stored(made[0]).acquired_by is None
    with pytest.raises(ClaimLost):
        first.save()
    with transaction.atomic(using=USING):
        assert acquire("anna") == made
        with transaction.atomic(using=USING):
            Picture.unacquire("anna", made[:1], using=USING)
            transaction.set_rollback(True, using=USING)
    assert [stored(row).acquired_by for row in made] == ["anna", "anna"]


@pytest.mark.parametrize("nested", [False, True])
def test_what_is_rolled_back_changes_no_object(nested: bool) -> None:
    pictures(2)
    [row] = acquire("anna", limit=1, timeout=SHORT)
    held = row.acquisition
    with transaction.atomic(using=USING) if nested else ExitStack():
        with transaction.atomic(using=USING):
            [more] = acquire("anna", left().exclude(pk=row.pk))
            for timeout in (60, 600):
                assert Picture.reacquire("anna", [row, more], timeout=timeout, using=USING) == ([row, more], [])
            assert held.expires_in() > 500
            Picture.unacquire("anna", [row, more], using=USING)
            assert row.acquisition is None
            transaction.set_rollback(True, using=USING)
        assert row.acquisition is held
        assert held.expires_in() < SHORT
        assert more.acquisition.lost
    eventually(lambda: row in acquire("bert"))
    assert held.lost
    for each in (row, more):
        with pytest.raises(ClaimLost):
            each.save()


def test_what_is_committed_changes_objects_for_good() -> None:
    pictures(2)
    with transaction.atomic(using=USING):
        [kept, back] = acquire("anna", timeout=60)
        with transaction.atomic(using=USING):
            Picture.reacquire("anna", [kept], timeout=600, using=USING)
            Picture.unacquire("anna", [back], using=USING)
    with transaction.atomic(using=USING):
        transaction.set_rollback(True, using=USING)
    assert kept.acquisition.expires_in() > 500
    assert back.acquisition is None
    kept.save()
    back.save()


@pytest.mark.parametrize("within", [False, True], ids=["by itself", "in a transaction"])
def test_what_is_acquired_is_held(within: bool) -> None:
    pictures(3)
    with transaction.atomic(using=USING) if within else ExitStack():
        rows = [acquired, renewed, back] = acquire("anna", timeout=60)
        assert [row.acquisition.lost for row in rows] == [False] * 3
        assert Picture.reacquire("anna", [renewed], timeout=600, using=USING).kept == [renewed]
        assert Picture.unacquire("anna", [back], using=USING) == 1
        acquired.save()
        found = Picture.reacquire("anna", using=USING).kept
        rows = [acquired, renewed, *found]
        assert [row.acquisition.lost for row in rows] == [False] * 4
    assert [row.acquisition.lost for row in rows] == [False] * 4
    assert 50 < acquired.acquisition.expires_in() < 60
    assert renewed.acquisition.expires_in() > 500
    assert back.acquisition is None


def test_what_is_gone_with_the_connection_changes_no_object() -> None:
    pictures(2)
    [row] = acquire("anna", limit=1, timeout=60)
    with transaction.atomic(using=USING):
        [more] = acquire("anna", timeout=60)
        Picture.unacquire("anna", [row], using=USING)
        connections[USING].close()
    assert more.acquisition.lost
    assert not row.acquisition.lost
    row.save()


def test_what_is_committed_stays_when_something_after_the_commit_raises() -> None:
    pictures(3)
    [renewed, back] = acquire("anna", limit=2, timeout=60)
    with suppress(ZeroDivisionError), transaction.atomic(using=USING):
        transaction.on_commit(lambda: 1 / 0, using=USING)
        [acquired] = acquire("anna", timeout=60)
        Picture.reacquire("anna", [renewed], timeout=600, using=USING)
        Picture.unacquire("anna", [back], using=USING)
    assert stored(back).acquired_by is None
    assert not acquired.acquisition.lost
    assert renewed.acquisition.expires_in() > 500
    assert back.acquisition is None
    with transaction.atomic(using=USING):
        Picture.unacquire("anna", [acquired], using=USING)
        transaction.set_rollback(True, using=USING)
    assert not acquired.acquisition.lost
    for each in (acquired, renewed, back):
        each.save()


@pytest.mark.backends("postgresql", "mariadb")
def test_a_row_that_another_changes_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    [first, second] = pictures(2)
    find, changed = Picture._acquire, []

    def late(*args: Any) -> Any:
        if not changed:
            changed.append(left().filter(pk=first.pk).update(done=True))
        return find(*args)

    monkeypatch.setattr(Picture, "_acquire", late)
    assert Picture.acquire("anna", left()) == [second]
    assert stored(first).acquired_by is None


def test_what_is_refused() -> None:
    for child in (Child, Numbered):
        with pytest.raises(TypeError, match=f"{child.__name__} needs a primary key"):
            child.acquire("anna", using=USING)
    with pytest.raises(TypeError, match="one of Named"):
        Picture.acquire("anna", Named.objects.all())  # type: ignore[arg-type]
    pictures(1)
    for other in (left().values(), left().values_list("pk"), left().values_list("pk", flat=True)):
        with pytest.raises(TypeError, match=r"leave out values\(\)"):
            acquire("anna", other)
    assert left().get().acquired_token == 0
    for wrong in ({"limit": 0}, {"timeout": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            acquire("anna", **wrong)
    with pytest.raises(ValueError, match="who"):
        acquire("")


@pytest.fixture
def workers(database: dict[str, Any]) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    with ExitStack() as stack:

        def begin(who: str, how: str) -> subprocess.Popen[str]:
            env = {**os.environ, "DATABASE": json.dumps(database)}
            command = [sys.executable, "-c", WORKER, who, how]
            process = subprocess.Popen(
                command, env=env, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return process

        yield begin


def test_two_processes_and_a_killed_holder(workers: Callable[..., subprocess.Popen[str]]) -> None:
    pictures(30)
    doomed = workers("doomed", "stay")
    assert doomed.stdout is not None
    held = doomed.stdout.readline().split()
    doomed.kill()
    for process in [workers("anna", "work"), workers("bert", "work")]:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
    assert len(held) == 3
    counts = Picture.objects.using(USING).values_list("worked_on", flat=True)
    assert list(counts) == [1] * 30
    assert not Picture.objects.using(USING).filter(acquired_by="doomed")
    tokens = Picture.objects.using(USING).filter(pk__in=held).values_list("acquired_token", flat=True)
    assert list(tokens) == [2, 2, 2]
