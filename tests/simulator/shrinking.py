"""Shorter stories with the same kind of fault: without scripts, troubles, steps, faults, pauses and arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.simulator.play import Result, kind_of, play
from tests.simulator.stories import Step, Story

Parts = tuple[Callable[[Story], list[Any]], Callable[[Story, list[Any]], Story]]
"""A function that returns the parts of one kind, and one that returns the story without some of them."""

SIMPLER = ("expiry", "names", "expires", "delay", "error", "max_attempts", "group", "rate")


def shrunk(result: Result, most: int = 400) -> Result:
    """Return the result of a short story with a fault of the same kind as the first one.

    :param most: the number of plays.
    """
    kind, tried = kind_of(result.faults[0]), 0

    def failing(story: Story) -> Result | None:
        nonlocal tried
        tried += 1
        found = play(story)
        return found if kind in found.kinds else None

    best = failing(result.story.changed(faults={(key, number): fault for key, number, fault in result.fired}))
    if best is None:
        return result
    has_changed = True
    while has_changed and tried < most:
        has_changed = False
        for parts, without in PARTS:
            size = max(1, len(parts(best.story)) // 2)
            while size:
                at = 0
                while at < len(parts(best.story)) and tried < most:
                    some = parts(best.story)[at : at + size]
                    if (found := failing(without(best.story, some))) is not None:
                        best, has_changed = found, True
                    else:
                        at += size
                size //= 2
    return best


def _scripts(story: Story) -> list[Any]:
    return list(story.scripts)


def _without_scripts(story: Story, some: list[Any]) -> Story:
    return story.changed(scripts={name: steps for name, steps in story.scripts.items() if name not in some})


def _troubles(story: Story) -> list[Any]:
    return list(story.troubles)


def _without_troubles(story: Story, some: list[Any]) -> Story:
    return story.changed(troubles=[each for each in story.troubles if each not in some])


def _steps(story: Story) -> list[Any]:
    return [(name, step.id) for name, steps in story.scripts.items() for step in steps]


def _without_steps(story: Story, some: list[Any]) -> Story:
    scripts = {name: [s for s in steps if (name, s.id) not in some] for name, steps in story.scripts.items()}
    return story.changed(scripts={name: steps for name, steps in scripts.items() if steps})


def _faults(story: Story) -> list[Any]:
    return list(story.faults or ())


def _without_faults(story: Story, some: list[Any]) -> Story:
    return story.changed(faults={key: fault for key, fault in (story.faults or {}).items() if key not in some})


def _details(story: Story) -> list[Any]:
    """Return the pauses, arguments and postings that a step may do without."""
    found: list[Any] = []
    for name, steps in story.scripts.items():
        for step in steps:
            found += [(name, step.id, "pause")] * bool(step.pause)
            found += [(name, step.id, key) for key in SIMPLER if step.args.get(key) is not None]
            postings = step.args.get("postings", [])
            found += [(name, step.id, "postings")] * (len(postings) > 1)
            for number, posting in enumerate(postings):
                found += [(name, step.id, number, key) for key, value in posting.items() if key != "name" and value]
    return found


def _without_details(story: Story, some: list[Any]) -> Story:
    def simpler(name: str, step: Step) -> Step:
        mine = [each[2:] for each in some if each[:2] == (name, step.id)]
        args = {key: None if (key,) in mine else value for key, value in step.args.items()}
        if "postings" in step.args:
            args["postings"] = [
                {key: value for key, value in posting.items() if (number, key) not in mine}
                for number, posting in enumerate(step.args["postings"])
            ][: -1 if ("postings",) in mine else None]
        return step._replace(args=args, pause=0 if ("pause",) in mine else step.pause)

    return story.changed(
        scripts={name: [simpler(name, step) for step in steps] for name, steps in story.scripts.items()}
    )


PARTS: tuple[Parts, ...] = (
    (_scripts, _without_scripts),
    (_troubles, _without_troubles),
    (_steps, _without_steps),
    (_faults, _without_faults),
    (_details, _without_details),
)
