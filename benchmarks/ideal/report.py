"""What was found, as tables in reStructuredText, and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from scene import Spent

STEPS = {
    "post": "post",
    "finish": "claim + consume",
    "post_many": "post, 100",
    "finish_many": "claim + consume, 100",
    "conduct": "one conductor",
}


class Cost(NamedTuple):
    """Of one job, one step and one contender: medians of the rounds; None is what nobody could count."""

    rate: float
    client: float
    server: float
    written: float | None
    statements: float | None
    trips: float | None


class Found:
    """What one backend has shown."""

    def __init__(self, backend: str, version: str) -> None:
        self.backend = backend
        self.version = version
        self.missing: list[str] = []
        self.notes: list[str] = []
        self.rounds: dict[tuple[str, str], list[tuple[int, Spent]]] = {}
        """Of each contender and step: how many jobs each round had, and what it took."""
        self.counts: dict[tuple[str, str], tuple[float, float | None]] = {}
        """Of each contender and step: statements and round trips for each job."""
        self.parts: dict[str, dict[str, float]] = {}
        """Of each step of the board: seconds of the client's CPU for each job, by part of the code."""

    def sampled(self, step: str, samples: Mapping[str, int], seconds: float) -> None:
        """:param seconds: what one job has cost."""
        total = sum(samples.values()) or 1
        self.parts[step] = {part: seconds * count / total for part, count in samples.items()}

    def libraries(self) -> list[str]:
        return list(dict.fromkeys(library for library, _ in self.rounds))

    def cost(self, library: str, step: str) -> Cost | None:
        rounds = self.rounds.get((library, step))
        if not rounds:
            return None
        written = [spent.written / jobs for jobs, spent in rounds if spent.written is not None]
        return Cost(
            statistics.median(jobs / spent.wall for jobs, spent in rounds),
            statistics.median(spent.client / jobs for jobs, spent in rounds),
            statistics.median(spent.server / jobs for jobs, spent in rounds),
            statistics.median(written) if written else None,
            *self.counts.get((library, step), (None, None)),
        )

    def ratio(self, one: str, other: str, step: str) -> float | None:
        """How fast one is in terms of the other: the median of the rounds, as they took turns in each."""
        if not (self.rounds.get((one, step)) and self.rounds.get((other, step))):
            return None
        pairs = zip(self.rounds[one, step], self.rounds[other, step], strict=True)
        return statistics.median((a / mine.wall) / (b / theirs.wall) for (a, mine), (b, theirs) in pairs)

    def plain(self) -> dict[str, Any]:
        steps = {}
        for library, step in self.rounds:
            cost = self.cost(library, step)
            assert cost is not None
            steps[f"{library}: {STEPS[step]}"] = {
                **cost._asdict(),
                "of_ideal": self.ratio(library, "ideal", step),
                "rounds": [{"jobs": jobs, **spent._asdict()} for jobs, spent in self.rounds[library, step]],
            }
        return {
            "backend": self.backend,
            "version": self.version,
            "missing": self.missing,
            "steps": steps,
            "parts": self.parts,
        }

    def tables(self) -> str:
        parts = [heading(self.version)]
        libraries = self.libraries()
        parts.append("Speed in terms of the ideal, and jobs a second:\n")
        rows = [[library, *(self._speed(library, step) for step in STEPS)] for library in libraries]
        parts.append(table(["", *STEPS.values()], rows))
        if others := [each for each in libraries if each not in ("ideal", "jobboard")]:
            parts.append("How many times as fast as each peer jobboard is:\n")
            rows = [[each, *(number(self.ratio("jobboard", each, step)) for step in STEPS)] for each in others]
            parts.append(table(["", *STEPS.values()], rows))
        parts.append("What one job costs (CPU in µs):\n")
        rows = [
            self._costs(library, step, cost)
            for step in STEPS
            for library in libraries
            if (cost := self.cost(library, step)) is not None
        ]
        header = ["step", "", "statements", "round trips", "bytes written", "client CPU", "server CPU"]
        parts.append(table(header, rows))
        if self.parts:
            names = sorted({name for each in self.parts.values() for name in each})
            parts.append("Where the board's client spends its time (µs of CPU a job):\n")
            rows = [
                [STEPS[step], *(f"{each.get(name, 0) * 1e6:,.0f}" for name in names)]
                for step, each in self.parts.items()
            ]
            parts.append(table(["step", *names], rows))
        parts += [f"{note}\n" for note in self.notes]
        if self.missing:
            parts.append(f"Not installed, and so left out: {', '.join(self.missing)}.\n")
        return "\n".join(parts)

    def _speed(self, library: str, step: str) -> str:
        cost = self.cost(library, step)
        if cost is None:
            return "–"
        return f"{number(self.ratio(library, 'ideal', step))} ({cost.rate:,.0f})"

    def _costs(self, library: str, step: str, cost: Cost) -> list[str]:
        micro = f"{cost.client * 1e6:,.0f}"
        server = "–" if self.backend == "sqlite" else f"{cost.server * 1e6:,.0f}"
        written = "–" if cost.written is None else f"{cost.written:,.0f}"
        return [STEPS[step], library, number(cost.statements), number(cost.trips), written, micro, server]


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def heading(text: str) -> str:
    return f"{text}\n{'~' * len(text)}\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A simple table; its first column must not be empty, so that a row is no continuation of the one above."""
    lines = [[cell or "\\" for cell in line] for line in (header, *rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    rule = "  ".join("=" * width for width in widths)
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([rule, texts[0], rule, *texts[1:], rule, ""])


def document(found: Sequence[Found]) -> str:
    return "\n".join(each.tables() for each in found)


def as_json(found: Sequence[Found], settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**settings, "backends": [each.plain() for each in found]}
