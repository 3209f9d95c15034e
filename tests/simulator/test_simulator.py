"""The engine and the store of key-value servers, judged on saved stories and on fresh seeds.

``python -m tests.simulator --seed N`` replays a seed. CONTRIBUTING has a section about the simulator.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import jobboard
from jobboard import runtime, states
from tests.full import FULL
from tests.simulator.coverage import REQUIRED, missing
from tests.simulator.play import Result, play
from tests.simulator.shrinking import shrunk
from tests.simulator.stories import Story, draw
from tests.simulator.world import installed

# Large groups go first: the seeds, which take a minute, must not be what a run waits for at its end.
pytestmark = [pytest.mark.backends("memory"), pytest.mark.timeout(7200), pytest.mark.xdist_group("simulator")]

ROOT = Path(__file__).parents[2]
STORIES = sorted(Path(__file__).with_name("stories").glob("*.json"))

BUDGET = 1200 if FULL else 60
"""The seconds of CPU time for fresh seeds."""

SEEDS = 10**9
"""The number of seeds."""


def seed_of_the_code() -> int:
    """Return the first seed of a run. Each version of the library plays seeds of its own, and the same ones each time:
    a run that fails can be repeated, and a merge runs what its author has run."""
    digest = hashlib.blake2b(digest_size=8)
    library = Path(jobboard.__file__).parent
    for path in sorted(library.rglob("*.py")):
        if "testing" not in path.relative_to(library).parts:
            digest.update(path.read_bytes())
    return int.from_bytes(digest.digest(), "big") % SEEDS


def told(result: Result) -> str:
    """Return the faults of a story, what happened in it, and the command that plays it again."""
    return "\n".join([*result.faults, *play(result.story, tell=True).told])


@pytest.mark.rule("A lapsed claim has no owner: an act by name gets NotFound, though the process remembers the claim.")
@pytest.mark.rule("An end by the owner's name leaves a later claim of the job alone.")
@pytest.mark.rule("A rate counts a claim from when it is sent, also where a session has to begin before that.")
@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_a_saved_story_shows_no_fault(path: Path) -> None:
    result = play(Story.read(path))

    assert not result.faults, told(result)


def test_fresh_seeds_show_no_fault_and_reach_what_they_are_to_judge(
    record_property: Callable[[str, object], None],
) -> None:
    first = int(os.environ.get("JOBBOARD_TEST_SEED", "0")) or seed_of_the_code()
    print(f"seeds from {first}; JOBBOARD_TEST_SEED={first} plays them again")
    record_property("seed", first)
    counts: Counter[str] = Counter()
    began, seed = time.process_time(), first
    while time.process_time() - began < BUDGET:
        result = play(draw(seed))
        if result.faults:
            command = f"python -m tests.simulator --seed {seed}"
            pytest.fail(f"{command}\n\nseed {seed}, shrunk:\n{told(shrunk(result))}", pytrace=False)
        counts += result.counts
        seed += 1

    assert not missing(counts), f"{seed - first} stories from seed {first} on"


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_seed_tells_the_same_story_whatever_the_hashes_of_texts(seed: int) -> None:
    command = [sys.executable, "-m", "tests.simulator", "--whole", "--seed", str(seed)]
    first, *others = (
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": hashes}, capture_output=True, check=True)
        for hashes in ("0", "1", "2")
    )

    assert first.stdout.count(b"\n") > 2
    assert {each.stdout for each in others} == {first.stdout}


def test_a_fault_of_the_library_is_found_and_its_story_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "next_token", lambda token, now: token)
    result = next(found for seed in range(1, 50) if (found := play(draw(seed))).faults)
    short = shrunk(result)

    def steps(story: Story) -> int:
        return sum(map(len, story.scripts.values()))

    assert result.kinds & short.kinds == {"token stays"}
    assert steps(short.story) < steps(result.story)
    assert play(short.story).faults == short.faults


def test_a_run_that_has_not_reached_all_is_refused() -> None:
    counts = Counter(dict.fromkeys(REQUIRED, 1))
    assert missing(counts) == []
    del counts["replays"]

    assert missing(counts) == ["replays: a call whose reply was lost has succeeded by a repetition"]


def test_a_story_is_written_and_read_again(tmp_path: Path) -> None:
    story = play(draw(4)).story.changed(rate=0.0, faults={(("A0", 1), 2): "lose"})
    path = tmp_path / "story.json"
    path.write_text(story.written())

    assert Story.read(path).written() == story.written()


def test_threads_of_other_boards_keep_the_real_runtime() -> None:
    seen: list[object] = []
    with installed():
        thread = threading.Thread(target=lambda: seen.extend([runtime.monotonic(), type(runtime.Lock())]))
        thread.start()
        thread.join()

    assert seen == [pytest.approx(time.monotonic(), abs=60), type(threading.Lock())]
