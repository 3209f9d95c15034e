"""The lists of scopes, in MariaDB's compound statements: what a claim adds to them, and what is taken from them."""

from __future__ import annotations

import re

import sqlalchemy as sa

from jobboard.backends.sql.scopes import ENTRY
from jobboard.backends.sql.statements import Statements
from jobboard.backends.sql.tables import place_of
from jobboard.engine import GATE, SCOPE
from jobboard.sql.prepared import Prepared, param, text

TEXT = "CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
"""As all columns of texts have it."""

_EXITS = f"""JSON_TABLE({{}}, '$[*]' COLUMNS (place VARCHAR(64) {TEXT} PATH '$[0]',
  part VARCHAR({ENTRY}) {TEXT} PATH '$[1]')) AS gone"""
# Lists of scopes. Where the gate is another now, or a list has no room for sure, not all of them get this version.
_LISTS = {
    "entries": f"""JSON_TABLE(:p_entries, '$[*]' COLUMNS (place VARCHAR(64) {TEXT} PATH '$[0]',
  `key` LONGTEXT {TEXT} PATH '$[1]', part LONGTEXT {TEXT} PATH '$[2]', room INT PATH '$[3]')) AS entry""",
    "given": _EXITS.format(":p_exits"),
    "held": _EXITS.format("l_exits"),
    "text": TEXT,
    "length": str(ENTRY),
    "scope": f"'{SCOPE}'",
    "gate": f"gate.board = :p_board AND gate.kind = '{GATE[0]}' AND gate.place = '{place_of(GATE[1])}'",
}
_ENTER = """INSERT INTO {sides} (board, kind, place, `key`, value, version)
SELECT STRAIGHT_JOIN :p_board, {scope}, entry.place, entry.`key`, entry.part, :p_version
FROM {entries}, {sides} AS gate WHERE {gate} AND gate.version = :p_gate LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE version = IF(MOD(LENGTH({sides}.value), {length}) = 0 AND
  LENGTH({sides}.value) <= entry.room, VALUES(version), {sides}.version),
  value = IF({sides}.version = :p_version, CONCAT({sides}.value, VALUES(value)), {sides}.value)"""
_ENTERED = """IF (SELECT STRAIGHT_JOIN COUNT(*) FROM {entries}, {sides} AS listed WHERE listed.board = :p_board
  AND listed.kind = {scope} AND listed.place = entry.place AND listed.version = :p_version) <> :p_number THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'not all of these claims have room for sure';
END IF"""
# Who has locked a list may be about to write down that one of these claims has lapsed: nobody waits for that.
_EXIT = """BEGIN DECLARE l_exits LONGTEXT;
SELECT STRAIGHT_JOIN JSON_ARRAYAGG(JSON_ARRAY(gone.place, gone.part)) INTO l_exits FROM {given}, {sides} AS listed
WHERE listed.board = :p_board AND listed.kind = {scope} AND listed.place = gone.place FOR UPDATE SKIP LOCKED;
UPDATE {held} STRAIGHT_JOIN {sides} AS listed ON listed.board = :p_board AND listed.kind = {scope}
  AND listed.place = gone.place
SET listed.value = REPLACE(listed.value, gone.part, ''), listed.version = listed.version + 1
WHERE MOD(LENGTH(listed.value), {length}) = 0;
SELECT ROW_COUNT(); END"""

# The same of one claim, of the job in l_uuid, l_name, l_group and l_token, where the only limit has a scope for it.
_ENTER_ONE = """IF l_name = :p_rule_name AND (NOT :p_per_group OR l_group IS NOT NULL) THEN
BEGIN DECLARE l_key LONGTEXT {text} DEFAULT IF(:p_per_group, CONCAT(l_name, CHAR(10 USING utf8mb4), l_group), l_name);
DECLARE l_place VARCHAR(64) {text} DEFAULT SHA2(l_key, 256);
DECLARE l_part LONGTEXT {text} DEFAULT CONCAT(l_uuid, ' ', GREATEST(l_token + 1, l_now), ',');
INSERT INTO {sides} (board, kind, place, `key`, value, version)
SELECT :p_board, {scope}, l_place, l_key, l_part, :p_version
FROM {sides} AS gate WHERE {gate} AND gate.version = :p_gate LOCK IN SHARE MODE
ON DUPLICATE KEY UPDATE version = IF(MOD(LENGTH({sides}.value), {length}) = 0 AND
  LENGTH({sides}.value) <= :p_room, VALUES(version), {sides}.version),
  value = IF({sides}.version = :p_version, CONCAT({sides}.value, VALUES(value)), {sides}.value);
IF LENGTH(l_part) <> {length} OR COALESCE((SELECT listed.version FROM {sides} AS listed WHERE listed.board = :p_board
  AND listed.kind = {scope} AND listed.place = l_place), -1) <> :p_version THEN
  SIGNAL SQLSTATE '23000' SET MYSQL_ERRNO = 1062, MESSAGE_TEXT = 'this claim has no room for sure';
END IF; END; END IF"""
_EXIT_ONE = """BEGIN DECLARE l_locked INT;
SELECT 1 INTO l_locked FROM {sides} AS listed
WHERE listed.board = :p_board AND listed.kind = {scope} AND listed.place = :p_place FOR UPDATE SKIP LOCKED;
UPDATE {sides} AS listed SET listed.value = REPLACE(listed.value, :p_part, ''), listed.version = listed.version + 1
WHERE l_locked = 1 AND listed.board = :p_board AND listed.kind = {scope} AND listed.place = :p_place
  AND MOD(LENGTH(listed.value), {length}) = 0;
SELECT ROW_COUNT(); END"""

_TEXTS = ("board", "entries", "exits", "place", "part", "rule_name")
_NUMBERS = ("version", "gate", "number", "per_group", "room")


class ScopeLists:
    """What claims add to the lists, and what is taken from these; ``…_one``: of one claim in one scope."""

    def __init__(self, statements: Statements) -> None:
        self._sides = statements.product.dialect.identifier_preparer.format_table(statements.tables.sides)
        self.enter = (self._statement(_ENTER), self._statement(_ENTERED))
        self.enter_one = self._statement(_ENTER_ONE)
        self.exit, self.exit_one = self._statement(_EXIT), self._statement(_EXIT_ONE)

    def _statement(self, template: str) -> Prepared:
        written = template.format(sides=self._sides, **_LISTS)
        binds = [kind(name) for kind, names in ((text, _TEXTS), (param, _NUMBERS)) for name in names]
        used = set(re.findall(r":p_(\w+)", written))
        return Prepared(sa.text(written).bindparams(*(bind for bind in binds if bind.key[2:] in used)))
