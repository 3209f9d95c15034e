"""What top draws at the widths that terminals have: numbers whole, texts cut, uuids first."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.cells import cell_len

import jobboard
from jobboard.cli import main
from jobboard.cli.sampler import Sampler
from jobboard.cli.tables import Column, drawn, made, uuid_column
from jobboard.cli.top import render

pytestmark = pytest.mark.backends("memory")

LONG = "thumbnails-of-pictures-that-were-uploaded-by-partners"
HOST = "worker-for-pictures.production.svc.cluster.local"
DONE = 0


def screen(sampler: Sampler, width: int, height: int = 40) -> list[str]:
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(render(sampler, None, height, console))
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
    lines = screen(sampler, width, height)
    assert max(map(len, lines)) <= width
    assert len(lines) <= height
    text = "\n".join(lines)
    assert re.search(r"\d…|…\d|\d\.…", text) is None
    titles = [line.split() for line in lines]
    assert ["for", "uuid", "name", "owner", "lease", "attempt"] in titles
    [claim] = lines[lines.index(next(line for line in lines if line.split()[:2] == ["for", "uuid"])) + 1 :][:1]
    assert re.fullmatch(r" *\d+\.\ds +[0-9a-f]{8} +th\S*… +wo\S*… +fixed, [45]m\d\ds +1 of 5", claim)
    conductor = lines[lines.index(next(line for line in lines if line.startswith("name  "))) + 1]
    assert re.search(r"^wo\S*… .*1234567 .*16 of 16 +123456789", conductor)
    assert re.search(r"ago +[0-9a-f]{8} +th\S*… +(TRASHED +)?no space", text)
    assert re.search(r"^oldest waiting: posted \d+\.\ds ago, [0-9a-f]{8} thumbn", text, re.MULTILINE)
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d  board-thumbn", text)
    assert re.search(r"^unclaimed +5 ", text, re.MULTILINE)
    assert "change/s" in text
    assert re.search(r"^by name +waiting +scheduled +running$|by name.* running$", text, re.MULTILINE)


def test_there_is_room_for_all(sampler: Sampler) -> None:
    text = "\n".join(screen(sampler, 600))
    assert "…" not in text
    assert sampler.running[0].uuid[:8] in text
    assert "lost=3" in text


@pytest.mark.parametrize("width", [None, 120, 80, 40])
def test_what_gives_way_first(width: int | None) -> None:
    """Texts are cut, the longest first; numbers are not, nor the first characters of a uuid."""
    uuid, name, error = "0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e", "resize", f"no space left on {LONG}, or 漢字漢字"
    columns: list[Column[None]] = [
        uuid_column(lambda row: uuid),
        Column("name", lambda row: name, "name"),
        Column("number", lambda row: 1234567, "number", number=True),
        Column("error", lambda row: error, "error"),
        Column("more", lambda row: "more", "more", least=100),
        Column("empty", lambda row: None, "empty"),
    ]
    header, line = drawn(made(columns, [None], width), width=width).splitlines()
    assert "1234567" in line
    assert ("empty" in header) is (width is None)
    assert ("more" in header) is (width is None or width >= 100)
    if width is None:
        assert line.split("  ")[0] == uuid
        assert error in line
    else:
        assert line.startswith("0d8a3c3e  resize")
        assert cell_len(line) <= width
        assert ("…" in line) is (width < 120)


@pytest.mark.backends("sqlite")
def test_once_into_a_pipe_is_a_line(board_of_commands: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board_of_commands.post("resize")
    assert main(["top", "--once"]) == DONE
    [line] = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"\S+ \S+ unclaimed 1, scheduled 0, claimed 0, trashed 0.*, oldest waiting \d\.\ds resize", line
    )
