"""Text of jobs, of errors and of users, as the command line prints and reads it."""

import logging
import sys
from operator import itemgetter

import click
import pytest

from jobboard.cli.common import age
from jobboard.cli.output import SafeFormatter, one_line, safe
from jobboard.cli.redaction import without_secrets
from jobboard.cli.tables import Column, drawn, made


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢 🎉 [/] [red]", "plain é 漢 🎉 [/] [red]"),
        ("\x1b[31m\x07\x00\x7f", "\\x1b[31m\\x07\\x00\\x7f"),
        ("\x9b31m\x85", "\\x9b31m\\x85"),
        ("a\nb\tc\rd", "a\\nb\\tc\\rd"),
        ("\u202eabc\u2066\u200f\ufeff\u2028", "\\u202eabc\\u2066\\u200f\\ufeff\\u2028"),
        ("\ud800", "\\ud800"),
        ("a\u200bb\xadc\u2060\u180e", "a\\u200bb\\xadc\\u2060\\u180e"),
        ("\ue000\U000f0000\U000e0041\ufff9", "\\ue000\\U000f0000\\U000e0041\\ufff9"),
        ("\uffff\u0378\U0010ffff", "\\uffff\\u0378\\U0010ffff"),
        ("a\u0301 \u3000\xa0", "a\u0301 \u3000\xa0"),
    ],
)
def test_characters_that_a_terminal_acts_on_are_escaped(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_line_breaks_may_be_kept() -> None:
    assert safe("a\n\tb\r\x1b", lines=True) == "a\n\tb\\r\\x1b"


def test_text_is_put_into_one_line() -> None:
    assert one_line("a\n  b\r\n\tc\x1b\u2028d\x85") == "a b c\\x1b\\u2028d\\x85"


def test_logged_tracebacks_are_safe() -> None:
    try:
        raise ValueError("\x1b]0;owned\x07")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "of %s", ("\x1b",), sys.exc_info())
    shown = SafeFormatter("%(message)s").format(record)
    assert shown.startswith("of \\x1b\nTraceback")
    assert "\\x1b]0;owned\\x07" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    ("uri", "secret"),
    [
        ("postgresql://me:hunter2@db/x", "hunter2"),
        ("postgresql://me:p%40ss%2Fword@db/x", "p@ss/word"),
        ("postgresql://me:p@ss@db/x", "p@ss"),
        ("mysql://db/x?password=hunter2&user=me", "hunter2"),
        ("postgresql+psycopg://:hunter2@db", "hunter2"),
    ],
)
def test_passwords_are_hidden(uri: str, secret: str) -> None:
    assert without_secrets(f"no login with '{secret}' at {uri}", uri).count("***") >= 2
    assert secret not in without_secrets(f"no login with '{secret}' at {uri}", uri)


def test_texts_without_a_password_stay() -> None:
    for uri in ("", None, "sqlite:///a.db", "postgresql://reach@db/x", "memory", "postgresql://me:@db"):
        assert without_secrets("can't reach db: me", uri) == "can't reach db: me"


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("1.5m", 90), ("2h", 7200), ("7d", 604800)])
def test_an_age_has_a_unit(text: str, seconds: float) -> None:
    assert age(text) == seconds


@pytest.mark.parametrize("text", ["", "7w", "-1", "d", "1d2h"])
def test_an_age_without_a_number_or_with_a_wrong_unit_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        age(text)


def test_a_table_without_a_width_cuts_nothing() -> None:
    row = ["n" * 500, "g" * 255, "o" * 255, "e" * 200]
    columns: list[Column[list[str]]] = [Column(None, itemgetter(at), title) for at, title in enumerate("abcd")]
    assert drawn(made(columns, [row], None), width=None).splitlines()[1].split() == row
