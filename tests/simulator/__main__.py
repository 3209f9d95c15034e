"""python -m tests.simulator: play seeds or a saved story, and show the first seed of each kind of fault."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from tests.simulator.play import Result, play
from tests.simulator.shrinking import shrunk
from tests.simulator.stories import Story, draw


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="play the story of this seed, and show it")
    parser.add_argument("--story", type=Path, help="play a saved story, and show it")
    parser.add_argument("--first", type=int, default=1, help="the first of many seeds (default: 1)")
    parser.add_argument("--seconds", type=float, default=60, help="play seeds for this CPU time (default: 60)")
    parser.add_argument("--habits", choices=("memory", "zookeeper", "etcd"), help="only stories of this server")
    parser.add_argument("--stop", action="store_true", help="stop at the first fault")
    parser.add_argument("--whole", action="store_true", help="do not shrink a story")
    parser.add_argument("--save", type=Path, help="write the shrunk story to this file")
    options = parser.parse_args()
    if options.seed is None and options.story is None:
        return search(options)
    story = draw(options.seed, options.habits) if options.story is None else Story.read(options.story)
    result = play(story, tell=True)
    if result.faults and not options.whole and options.story is None:
        result = play(shrunk(result).story, tell=True)
    show(result)
    if options.save is not None:
        options.save.write_text(result.story.written())
    return 1 if result.faults else 0


def show(result: Result) -> None:
    print(*result.told, *result.faults, sep="\n")
    print(result.story.habits, result.story.options)


def search(options: argparse.Namespace) -> int:
    began, seed = time.process_time(), options.first
    kinds: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    while time.process_time() - began < options.seconds:
        result = play(draw(seed, options.habits))
        counts += result.counts
        for kind in sorted(result.kinds - kinds.keys()):
            print(f"seed {seed}: {next(fault for fault in result.faults if fault.startswith(kind))}", flush=True)
        kinds.update(result.kinds)
        if options.stop and result.faults:
            if options.save is not None:
                options.save.write_text(shrunk(result).story.written())
            break
        seed += 1
    for name, count in sorted(counts.items()):
        print(f"{count:9} {name}")
    print(f"seeds {options.first} to {seed - 1}, {time.process_time() - began:.0f} s of CPU time", dict(kinds))
    return 1 if kinds else 0


if __name__ == "__main__":
    sys.exit(main())
