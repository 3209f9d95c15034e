"""Claimable models of Django: their verbs, their fence, and Django's transactions."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import override_settings

from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.testing import eventually
from jobboard.testing.conformance.support import SHORT, Background
from tests.contrib.django.rows import USING, Child, Named, Numbered, Picture, Tag, acquire, left, pictures, stored

pytestmark = [pytest.mark.backends("sqlite", "postgresql", "mariadb"), pytest.mark.usefixtures("tables")]
ONE = pytest.mark.backends("sqlite")


@pytest.mark.rule("Batches of held Django rows are disjoint and in order, and come again after a lapse.")
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


@pytest.mark.rule("A query set that finds a row more than once acquires it once.")
def test_a_query_set_that_finds_a_row_more_than_once() -> None:
    made = pictures(3)
    for picture in [*made, *made]:
        Tag.objects.using(USING).create(picture=picture)
    tagged = Picture.objects.using(USING).filter(tags__gt=0).order_by("-rank")
    assert tagged.count() == 6
    assert acquire("anna", tagged, limit=2) == [made[2], made[1]]
    assert acquire("bert", tagged) == [made[0]]


@pytest.mark.rule("ClaimableModel takes the arguments and settings of django-scalable.")
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
    assert Picture.unacquire_timed_out(using=USING) == 1
    assert Picture.unacquire("anna", queryset=odd) == 0
    assert Picture.unacquire("anna", odd.model.objects.using(USING).filter(rank=0)) == 1
    assert [stored(row).acquired_by for row in made] == [None, None, "anna", None]


@pytest.mark.rule("ClaimableModel takes the arguments and settings of django-scalable.")
@ONE
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


def test_an_overtaken_object_is_neither_saved_nor_deleted() -> None:
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


@pytest.mark.rule("A holder that has given back writes nothing as a holder.")
@ONE
def test_an_object_that_was_given_back_is_saved_until_another_has_its_row() -> None:
    pictures(2)
    [itself, by_name] = acquire("anna")
    Picture.unacquire("anna", [itself])
    itself.save()
    Picture.unacquire("anna", using=USING)
    with pytest.raises(ClaimLost):
        by_name.save()
    assert acquire("bert") == [itself, by_name]
    for each in (itself, by_name):
        with pytest.raises(ClaimLost):
            each.save()


@ONE
def test_objects_that_hold_nothing_leave_the_claim_as_it_is() -> None:
    [page] = pictures(1)
    [held] = acquire("anna")
    page.rank = 5
    page.save()
    found = stored(page)
    assert (found.rank, found.acquired_by, found.acquired_token) == (5, "anna", 1)
    held.done = True
    held.save()
    held.delete()


@pytest.mark.rule("A copy of a held row belongs to nobody.")
@ONE
@pytest.mark.parametrize("of", ["a held row", "a loaded row"])
@pytest.mark.parametrize("idiom", ["key and state", "key alone", "key of its own"])
def test_a_copy_of_a_row_belongs_to_nobody(of: str, idiom: str) -> None:
    pictures(1)
    [held] = acquire("anna")
    copy = held if of == "a held row" else stored(held)
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


@pytest.mark.rule("A copy of a held row belongs to nobody.")
@ONE
def test_a_copy_of_a_held_or_lost_row_is_no_part_of_the_claim() -> None:
    pictures(2)
    rows = [held, copy] = acquire("anna", timeout=SHORT)
    copy.pk = None
    copy.save()
    assert not copy.acquired_by
    assert Picture.reacquire("anna", rows, timeout=SHORT, using=USING) == ([held], [copy])
    assert Picture.unacquire("anna", rows) == 1
    [slow] = acquire("anna", left().filter(pk=held.pk), timeout=SHORT)
    eventually(lambda: slow in acquire("bert"))
    slow.pk = None
    slow.save()
    assert not slow.acquired_by


def test_reacquire_returns_kept_and_lost_rows() -> None:
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


@pytest.mark.rule("An object whose acquisition was rolled back is not saved, be it to a savepoint.")
@pytest.mark.parametrize("nested", [False, True])
def test_an_object_whose_acquisition_was_rolled_back_is_not_saved(nested: bool) -> None:
    pictures(2)
    [row] = acquire("anna", limit=1, timeout=SHORT)
    with transaction.atomic(using=USING) if nested else ExitStack():
        with transaction.atomic(using=USING):
            [more] = acquire("anna", left().exclude(pk=row.pk))
            assert Picture.reacquire("anna", [more], timeout=60, using=USING) == ([more], [])
            Picture.unacquire("anna", [row], using=USING)
            for each in (row, more):
                each.save()
            transaction.set_rollback(True, using=USING)
        row.save()
        with pytest.raises(ClaimLost):
            more.save()
    eventually(lambda: row in acquire("bert"))
    for each in (row, more):
        with pytest.raises(ClaimLost):
            each.save()


@pytest.mark.backends("postgresql", "mariadb")
def test_a_row_that_another_changes_before_it_is_locked_is_passed_over() -> None:
    [first, second] = pictures(2)
    changed: list[int] = []

    def change_first(execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if "FOR UPDATE" in sql and not changed:
            changed.append(elsewhere(lambda: left().filter(pk=first.pk).update(done=True)))
        return execute(sql, *rest)

    with connections[USING].execute_wrapper(change_first):
        assert Picture.acquire("anna", left()) == [second]
    assert changed == [1]
    assert stored(first).acquired_by is None


def elsewhere(work: Callable[[], int]) -> int:
    """Do work on another connection."""

    def call() -> int:
        try:
            return work()
        finally:
            connections[USING].close()

    done: int = Background(call).wait(20)
    return done


@pytest.mark.rule("A query set that gives no objects is refused.")
@ONE
def test_wrong_models_query_sets_and_arguments_are_refused() -> None:
    for child in (Child, Numbered):
        with pytest.raises(TypeError, match=f"{child.__name__} needs a primary key"):
            child.acquire("anna", using=USING)
    for verb in (Picture.acquired, Picture.acquire, Picture.reacquire, Picture.unacquire):
        with pytest.raises(TypeError, match="queryset is one of Named, not of Picture"):
            verb("anna", Named.objects.all())  # type: ignore[operator]
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
