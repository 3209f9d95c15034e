"""A take of one job by one request: it looks, locks, claims, enters the scope of one limit, keeps the answer, commits.

One of several jobs takes two: no statement of MariaDB's both changes rows and tells of them, and variables hold one
row.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from typing import Any, cast

import sqlalchemy as sa

from jobboard.backends.sql.answers import slot_of
from jobboard.backends.sql.looking import Glance, TakeRequest
from jobboard.backends.sql.mariadb.compounds import as_text, first_of, into, kept, variable
from jobboard.backends.sql.mariadb.lists import TEXT, ScopeLists
from jobboard.backends.sql.scopes import ENTRY, rules_of
from jobboard.backends.sql.statements import Statements, now
from jobboard.backends.sql.tables import MAX_ATTEMPTS, MAX_TOKEN, RECORD
from jobboard.backends.sql.writing import claimed
from jobboard.engine import Limits
from jobboard.primitives import Nonce
from jobboard.sql.claims import locking
from jobboard.sql.hints import PRIMARY, by_key
from jobboard.sql.links import ConstraintViolated, Link
from jobboard.sql.prepared import Compound, Prepared, param, text

_NOT_RULED = """IF ROW_COUNT() <> 1 THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'the rules are others now';
END IF;"""


def one_rule(limits: Limits | None, names: Sequence[str] | None) -> dict[str, Any] | None:
    """What a take of one job of these names obeys, as parameters: one limit, or none; None if it is more than that."""
    if limits is None:
        return {}
    count, rule = rules_of(limits, names)
    if count != 1 or not rule["p_most"]:
        return None
    room = (cast("int", rule.pop("p_most")) - 1) * ENTRY
    return {**rule, "p_room": room, "p_version": secrets.randbits(62)}


class Singles:
    def __init__(self, st: Statements) -> None:
        named = st.jobs.c.name == text("name")
        self._takes = {
            (index, ruled): _take(st, ruled, index, *looked)
            for index, looked in (("ready", ()), ("by_name", (named,)))
            for ruled in (False, True)
        }
        self._takes[PRIMARY, True] = _take(st, True, PRIMARY)

    def take(self, link: Link, request: TakeRequest, params: dict[str, Any], nonce: Nonce) -> Glance:
        """:param params: of the board, of the request, of a limit if there is one, and ``p_ids`` if it is to be one of
        these."""
        asked = {**params, **request.lease, **slot_of(nonce)}
        # One column: each costs the driver 16 us.
        index = PRIMARY if "p_ids" in params else "ready" if request.names is None else "by_name"
        [(told,)] = link.compound(self._takes[index, "p_room" in params], asked)
        row = json.loads(told)
        if len(row) > RECORD:
            return Glance([claimed(row, request.lease, row[RECORD])], False, 0)
        id_, instant, event, gate = row
        if id_ is not None:
            raise ConstraintViolated("a row can't be claimed, or is longer, as JSON, than a packet may be")
        left = None if event is None else event - instant
        return Glance([], left is not None and left <= 0, left, gate=gate, since=event or 0)


def _take(st: Statements, ruled: bool, index: str, *conditions: sa.ColumnElement[bool]) -> Compound:
    """:param ruled: the claim enters a scope.
    :param index: that of the primary key: the first one of ``p_ids``."""
    c = st.jobs.c
    instant, event, id_ = (variable(name, sa.BigInteger) for name in ("l_now", "l_event", "l_id"))
    # In JSON a variable by itself is a text.
    numbers = [each + 0 for each in (id_, instant, event)]
    next_event = st.first_event().scalar_subquery()
    sound = sa.and_(c.attempts < MAX_ATTEMPTS, c.token < MAX_TOKEN)
    told = sa.case((sound, as_text(st, numbers[1])))
    found, variables = [c.id, c.token, told], "l_id, l_token, l_told"
    if ruled:
        found, variables = [*found, c.uuid, c.name, c.job_group], f"{variables}, l_uuid, l_name, l_group"
    pick = sa.select(*found).where(st.ready_condition(), *conditions)
    pick = first_of(st, pick) if index == PRIMARY else st.in_order(pick, index)
    # As the claim writes it.
    token = sa.func.greatest(variable("l_token", sa.BigInteger) + 1, instant)
    blank = sa.literal(" ", sa.String(), literal_execute=True)
    same = (c.id == id_, st.gate() == param("gate"))
    claim = by_key(sa.update(st.jobs).where(*same).values(st.claim.values(instant)), st.jobs)
    return Compound(
        "DECLARE l_now, l_event, l_id, l_token BIGINT; DECLARE l_told LONGTEXT CHARACTER SET utf8mb4;",
        *([f"DECLARE l_uuid VARCHAR(64) {TEXT}; DECLARE l_name, l_group VARCHAR(255) {TEXT};"] if ruled else []),
        into("l_now, l_event", now, next_event),
        # Nothing is taken while something overdue may belong before it, unless a sweep has just been.
        "IF %(p_swept)s OR l_event IS NULL OR l_event > l_now THEN",
        Prepared(locking(pick, st.product).suffix_with(f"INTO {variables}")),
        "IF l_told IS NOT NULL THEN",
        *kept(st, sa.func.concat(id_, blank, token)),
        Prepared(claim),
        _NOT_RULED,
        *([st.part(ScopeLists).enter_one] if ruled else []),
        Prepared(sa.select(variable("l_told"))),
        "ELSEIF l_id IS NULL THEN",
        # Whoever has claimed it in between has left an event.
        into("l_event", next_event),
        "END IF; END IF;",
        "IF l_told IS NULL THEN",
        Prepared(sa.select(sa.func.json_array(*numbers, st.gate()))),
        "END IF;",
        "COMMIT;",
    )
