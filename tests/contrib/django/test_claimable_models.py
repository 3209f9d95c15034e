"""Claimable models of Django: their databases, columns and keys."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest
from django.core import serializers
from django.core.exceptions import ValidationError
from django.db import connections, models, router

from jobboard.exceptions import ClaimLost
from tests.contrib.django.rows import USING, Detail, Named, Page, Picture, Seen, Sheet, acquire, pictures, stored

ONE = pytest.mark.backends("sqlite")
pytestmark = [pytest.mark.backends("sqlite", "postgresql", "mariadb"), pytest.mark.usefixtures("tables")]


@pytest.fixture
def elsewhere(tables: None) -> Iterator[None]:
    """The table of pictures in the default database, too."""
    with connections["default"].schema_editor() as editor:
        editor.create_model(Picture)
    yield
    with connections["default"].schema_editor() as editor:
        editor.delete_model(Picture)


@pytest.mark.rule("Rows of two databases are held apart.")
@ONE
def test_rows_of_two_databases_are_held_apart(elsewhere: None) -> None:
    [here] = pictures(1)
    there = Picture.objects.create(pk=here.pk)
    [held] = acquire("anna")
    [other] = Picture.acquire("anna")
    assert [held._state.db, other._state.db] == [USING, "default"]
    # Key, name and token are those of the other one.
    assert Picture.reacquire("anna", [held], timeout=60).kept == [held]
    assert stored(here).acquired_until != held.acquired_until
    assert Picture.unacquire("anna", [held]) == 1
    assert stored(here).acquired_by is None
    assert Picture.objects.get(pk=there.pk).acquired_by == "anna"
    other.save()
    for verb in (Picture.reacquire, Picture.unacquire):
        with pytest.raises(ValueError, match="'default' and in 'project'"):
            verb("anna", [held, other])
        with pytest.raises(ValueError, match="'default' and in 'project'"):
            verb("anna", [other], using=USING)
    assert Picture.unacquire("anna") == 1


class Primary:
    """Reads are of one database, writes go to another."""

    def db_for_read(self, model: object, **hints: object) -> str:
        return "replica"

    def db_for_write(self, model: object, **hints: object) -> str:
        return USING


@pytest.mark.rule("Rows of two databases are held apart.")
@ONE
def test_rows_that_were_read_from_a_replica_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    pictures(1)
    monkeypatch.setattr(router, "routers", [Primary()])
    [held] = Picture.acquire("anna")
    # As of one that was read.
    held._state.db = "replica"
    assert Picture.reacquire("anna", [held]).kept == [held]
    held.save()
    held._state.db = "replica"
    assert Picture.unacquire("anna", [held]) == 1


@ONE
@pytest.mark.parametrize("language", ["json", "xml"])
def test_held_rows_are_dumped_and_loaded_as_fixtures(language: str) -> None:
    pictures(2)
    [held] = acquire("anna", limit=1)
    rows = list(Picture.objects.using(USING).order_by("pk"))
    fixture = serializers.serialize(language, rows)
    Picture.objects.using(USING).all().delete()
    for each in serializers.deserialize(language, fixture, using=USING):
        each.save(using=USING)
    [loaded, free] = Picture.objects.using(USING).order_by("pk")
    assert (loaded.acquired_by, loaded.acquired_token) == ("anna", 1)
    # Of a time's microseconds, Django writes but the milliseconds in JSON.
    millisecond = datetime.timedelta(milliseconds=1)
    assert abs(loaded.acquired_until - held.acquired_until) < millisecond
    assert abs(loaded.acquired_at - held.acquired_at) < millisecond
    assert (free.acquired_by, free.acquired_until) == (None, None)


@ONE
def test_a_column_of_times_takes_aware_times_alone() -> None:
    pictures(1)
    [held] = acquire("anna")
    held.full_clean()
    until = Picture._meta.get_field("acquired_until")
    # Others go by the class of a field, too.
    assert not isinstance(until, models.IntegerField | models.DateField)
    rows = Picture.objects.using(USING)
    for time in (held.acquired_until, held.acquired_until.isoformat()):
        assert until.clean(time, held) == held.acquired_until
        assert rows.filter(acquired_until=time).exists()
        assert not rows.filter(acquired_until__gt=time).exists()
    for wrong in ("tomorrow", "2030-01-01T00:00:00", datetime.datetime.fromisoformat("2030-01-01"), 5):
        with pytest.raises(ValidationError, match=r"must be a|Invalid isoformat"):
            until.clean(wrong, held)


@ONE
def test_migrations_name_public_classes() -> None:
    paths = [Picture._meta.get_field(f"acquired_{what}").deconstruct()[1] for what in ("by", "at", "until", "token")]
    kinds = ("NameField", "MomentField", "MomentField", "TokenField")
    assert paths == [f"jobboard.contrib.django.fields.{kind}" for kind in kinds]


def test_a_key_may_be_a_uuid() -> None:
    rows = [Named.objects.using(USING).create() for _ in range(3)]
    acquired = Named.acquire("anna", using=USING)
    assert set(acquired) == set(rows)
    acquired[0].save()
    assert Named.unacquire("anna", acquired, using=USING) == 3


@ONE
def test_a_proxy_acquires_the_rows_of_its_model() -> None:
    [one, two] = pictures(2)
    [seen] = Seen.acquire("anna", limit=1, using=USING)
    assert (type(seen), seen.pk) == (Seen, one.pk)
    assert acquire("anna") == [two]
    assert Seen.reacquire("anna", [seen]).kept == [seen]
    seen.done = True
    seen.save()
    assert stored(one).done
    assert Seen.unacquire("anna", using=USING) == 2
    with pytest.raises(ClaimLost, match="Seen 1"):
        seen.save()


@ONE
def test_a_key_may_be_that_of_another_model() -> None:
    for picture in pictures(2):
        Detail.objects.using(USING).create(picture=picture)
    rows = [one, _] = Detail.acquire("anna", using=USING)
    one.save()
    assert acquire("anna") == [row.picture for row in rows]
    for verb in (Picture.reacquire, Picture.unacquire):
        with pytest.raises(TypeError, match="of Picture, not of Detail"):
            verb("anna", rows)  # type: ignore[arg-type]
    assert Detail.reacquire("anna", rows).kept == rows
    assert Detail.unacquire("anna", rows) == 2


@pytest.mark.rule("Django's rows are those of Model.objects, or of a manager that is given.")
@ONE
def test_the_manager_objects_has_the_rows() -> None:
    [here, gone] = [Page.everything.using(USING).create(gone=gone) for gone in (False, True)]
    [held] = Page.acquire("anna", using=USING)
    assert held == here
    assert list(Page.acquired("anna").using(USING)) == [here]
    assert Page.reacquire("anna", using=USING).kept == [here]
    assert Page.acquire("anna", Page.everything.db_manager(USING)) == [gone]
    assert set(Page.reacquire("anna", Page.everything, using=USING).kept) == {here, gone}
    assert Page.unacquire_timed_out(Page.everything, using=USING) == 0
    assert Page.unacquire("anna", Page.everything, using=USING) == 2
    with pytest.raises(TypeError, match="of Picture, not of Page"):
        Page.acquire("anna", Picture.objects)  # type: ignore[arg-type]


@pytest.mark.rule("Django's rows are those of Model.objects, or of a manager that is given.")
@ONE
def test_a_manager_may_have_another_name() -> None:
    sheet = Sheet.sheets.using(USING).create()
    assert Sheet.acquire("anna", using=USING) == [sheet]
    assert list(Sheet.acquired("anna").using(USING)) == [sheet]


@pytest.mark.rule("A row whose acquired_by is NULL is free.")
@ONE
def test_a_row_without_a_name_is_free() -> None:
    pictures(1)
    [held] = acquire("anna")
    Picture.objects.using(USING).update(acquired_by=None)
    assert Picture.reacquire("anna", [held]).lost == [held]
    [row] = acquire("bert")
    assert row.acquired_token == 2
    with pytest.raises(ClaimLost):
        held.save()


@pytest.mark.rule("Leases on Django's rows leave other columns as they are.")
def test_leases_leave_other_columns_as_they_are(backend: str) -> None:
    if backend == "mariadb":
        with connections[USING].cursor() as cursor:
            column = "TIMESTAMP(6) NOT NULL DEFAULT '2000-01-01' ON UPDATE CURRENT_TIMESTAMP(6)"
            cursor.execute(f"ALTER TABLE {Page._meta.db_table} MODIFY changed {column}, ADD unknown {column}")
    Page.objects.using(USING).bulk_create([Page(), Page()])

    def read() -> list[object]:
        rows = Page.everything.using(USING).order_by("pk")
        if backend == "mariadb":
            rows = rows.extra(select={"unknown": "unknown"})
        return [(row.changed, getattr(row, "unknown", None)) for row in rows]

    before = read()
    rows = Page.acquire("anna", using=USING)
    assert read() == before, "acquire"
    Page.reacquire("anna", rows)
    assert read() == before, "reacquire"
    Page.unacquire("anna", rows[:1])
    Page.unacquire("anna", using=USING)
    assert read() == before, "unacquire"
    Page.acquire("anna", acquired_at=datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC), using=USING)
    assert Page.unacquire_timed_out(using=USING) == 2
    assert read() == before, "unacquire_timed_out"
