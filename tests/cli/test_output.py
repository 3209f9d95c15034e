"""Text of jobs, of errors and of users, as the command line prints and reads it."""

import io
import logging
import sys
import time

import pytest

from jobboard.cli.output import SafeFormatter, hinting, log_to_stderr, one_line, safe
from jobboard.cli.redaction import without_secrets


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
    assert safe(f"{text}\n\t", lines=True).endswith("\n\t")
    assert one_line(f" a\n  b\r\n\t{text}").startswith("a b ")


def test_logged_tracebacks_are_safe() -> None:
    try:
        raise ValueError("\x1b]0;owned\x07")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "", 1, "of %s", ("\x1b",), sys.exc_info())
    shown = SafeFormatter("%(message)s").format(record)
    assert shown.startswith("of \\x1b\nTraceback")
    assert "\\x1b]0;owned\\x07" in shown
    assert "\x1b" not in shown


def test_log_lines_have_their_time_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    time.tzset()
    try:
        record = logging.LogRecord("x", logging.WARNING, "", 1, "late", (), None)
        record.created, record.msecs = 1_000_000_000.0625, 62.0
        shown = SafeFormatter("%(asctime)s %(message)s").format(record)
    finally:
        monkeypatch.undo()
        time.tzset()
    assert shown == "2001-09-09 01:46:40.062Z late"


def test_hints_at_commands_are_as_a_user_types_them() -> None:
    text = "'jobboard list' or `jobboard setup` of jobboard"
    assert hinting(text, "manage.py jobboard") == "'manage.py jobboard list' or `manage.py jobboard setup` of jobboard"
    assert hinting(text) == text
    start = "start one with 'jobboard work MODULE:NAME'"
    assert hinting(start) == start
    assert hinting(start, "manage.py jobboard --backend b") == "start one with 'manage.py jobboard --backend b work'"


@pytest.mark.rule("A log line that a framework's own handler prints is printed once.")
def test_a_line_that_another_handler_prints_is_not_printed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django's own settings print the lines of tasks while DEBUG is true."""
    monkeypatch.setattr(logging.root, "handlers", [])
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    log_to_stderr(logging.INFO)
    framework = logging.getLogger("framework")
    own = logging.StreamHandler()
    for handlers, debug, text in (([own], True, "once"), ([own], False, "by ours"), ([], True, "by ours again")):
        monkeypatch.setattr(framework, "handlers", handlers)
        monkeypatch.setattr(own, "filters", [lambda record, debug=debug: debug])
        logging.getLogger("framework.tasks").warning(text)
    assert [line.split(" WARNING ")[-1] for line in out.getvalue().splitlines()] == ["once", "by ours", "by ours again"]


@pytest.mark.rule("A user without a password is no secret.")
def test_texts_without_a_password_stay() -> None:
    for uri in ("", None, "sqlite:///a.db", "postgresql://reach@db/x", "memory", "postgresql://me:@db"):
        assert without_secrets("can't reach db: me", uri) == "can't reach db: me"
