"""What top draws at the widths that terminals have: numbers whole, texts cut, uuids first."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest

import jobboard
from jobboard.cli import main
from jobboard.cli.fitting import Column, Fitted, cut
from jobboard.cli.sampling import Sampler
from jobboard.cli.screen import render

pytestmark = pytest.mark.backends("memory")

LONG = "thumbnails-of-pictures-that-were-uploaded-by-partners"
HOST = "worker-for-pictures.production.svc.cluster.local"
DONE = 0


def drawn(sampler: Sampler, width: int, height: int = 40) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width, height=height, color_system=None).print(render(sampler, None, height, width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


@pytest.fixture
def sampler(make_board: Any) -> Sampler:
    """Of a board on which everything has a long name."""
    board = make_board(f"board-{LONG}")
    board.post_many([{"name": f"{LONG}-{n}", "max_attempts": 5} for n in range(12)])
    for n in range(4):
        board.claim_next(f"{HOST}-{10000 + n}", expiry=300)
        told = {
            "host": HOST,
            "pid": 1234567,
            "names": [LONG, f"{LONG}-2"],
            "running": 16,
            "slots": 16,
            "consumed": 123456789,
            "lost": 3,
        }
        board.register_entity(jobboard.Entity("conductor", f"{HOST}-{10000 + n}", told))
    for job in list(board.iterjobs(only_unclaimed=True))[:3]:
        board.cancel(job, reason="no space left on the device that the pictures are to be written to")
    known = Sampler(board)
    while not known.complete:
        known.look()
    return known


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("height", [24, 40])
def test_numbers_are_whole(sampler: Sampler, width: int, height: int) -> None:
    lines = drawn(sampler, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    text = "\n".join(lines)
    assert re.search(r"\d…|…\d|\d\.…", text) is None
    titles = [line.split() for line in lines]
    [running] = [row for row in titles if row[:2] == ["for", "name"]]
    assert running[:5] == ["for", "name", "owner", "lease", "attempt"]
    [who] = [row for row in titles if row[:2] == ["name", "host"]]
    assert [title for title in who if title != "runs"][:6] == ["name", "host", "pid", "running", "done", "/min"]
    [claim] = lines[lines.index(next(line for line in lines if line.startswith("for"))) + 1 :][:1]
    assert re.fullmatch(r"\d+\.\ds +thumbn\S*… +worker-\S*… +fixed, [45]m\d\ds +1 of 5( +[0-9a-f]{8})?", claim)
    conductor = lines[lines.index(next(line for line in lines if line.startswith("name  "))) + 1]
    assert re.search(r"^worker-\S*… +worker\S*… +1234567 .*16 of 16 +123456789", conductor)
    assert re.search(r"ago +thumbn\S*… +trashed +no space", text)
    assert re.search(r"^oldest waiting  thumbn\S*, posted \d+\.\ds ago", text, re.MULTILINE)
    assert re.search(r"^board-thumbn\S*  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", text)
    assert re.search(r"^unclaimed +5 ", text, re.MULTILINE)
    assert "change/s" in text
    assert re.search(r"^by name +waiting +scheduled +running$|by name.* running$", text, re.MULTILINE)


def test_there_is_room_for_all(sampler: Sampler) -> None:
    text = "\n".join(drawn(sampler, 300))
    assert "…" not in text
    assert sampler.running[0].uuid in text
    assert "lost=3" in text


def test_what_gives_way_first() -> None:
    uuid = "0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e"
    columns = (Column("n", "number"), Column("name"), Column("more", gives_way=1), Column("uuid", "uuid"))
    table = Fitted(columns, [("123456", "n" * 20, "m" * 10, uuid)])
    assert table.natural == 6 + 2 + 20 + 2 + 10 + 2 + 36
    assert table.widths(78) == [6, 20, 10, 36]
    assert table.widths(77) == [6, 20, 10, 8]
    assert table.widths(49) == [6, 19, 10, 8]
    assert table.widths(41) == [6, 20, 10, 0]
    assert table.widths(26) == [6, 8, 8, 0]
    assert table.widths(25) == [6, 17, 0, 0]
    assert table.widths(10) == [6, 2, 0, 0]


def test_cut() -> None:
    assert cut("abc", 3) == "abc"
    assert cut("abcd", 3) == "ab…"
    assert cut("漢字漢字", 5) == "漢字…"
    assert cut("abcd", 0) == ""


@pytest.mark.backends("sqlite")
def test_once_into_a_pipe_is_a_line(board_of_commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board_of_commands.post("resize")
    assert main(["top", "--once"]) == DONE
    [line] = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"\S+ \S+ unclaimed 1, scheduled 0, claimed 0, trashed 0.*, oldest waiting \d\.\ds resize", line
    )
