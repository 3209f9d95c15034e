"""What a run of the ageing benchmark has measured: a line for each lap, what it says as a whole, and a chart."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

VERBS = ("post", "claim", "consume", "abandon", "extend")


@dataclass
class Run:
    """One curve: a database under one pin."""

    database: str
    pin: str
    laps: list[dict[str, Any]] = field(default_factory=list)
    rate: float = 0.0

    def lap(
        self, at: float, held: bool, jobs: int, seconds: float, times: dict[str, list[float]], gauges: dict[str, float]
    ) -> None:
        # All may have come in one report.
        rate = jobs / max(seconds, 0.001)
        verbs = {verb: _percentiles(times[verb]) for verb in VERBS if times[verb]}
        done = jobs + (self.laps[-1]["done"] if self.laps else 0)
        told = {"done": done, "at": round(at, 1), "pinned": held, "rate": round(rate, 1), "verbs": verbs}
        self.laps.append({**told, **gauges})
        cells = [f"{verb} {median:.2f}/{p99:.2f}" for verb, (median, p99) in verbs.items()]
        sizes = [f"{name} {_short(value)}" for name, value in gauges.items()]
        pin = self.pin if held else "none"
        print(f"{self.database:10} {pin:5} {done:>8}  {rate:6.0f}/s", *cells, *sizes, sep="  ", flush=True)


def _percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Median and 99th percentile, in ms."""
    ordered = sorted(seconds)
    return (
        round(statistics.median(ordered) * 1e3, 3),
        round(ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1e3, 3),
    )


def _short(value: float) -> str:
    for unit in ("", "k", "M"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g}G"


SETTLED = 60
"""How many seconds after a pin was let go the board is to be as before."""


def summary(runs: Sequence[Run]) -> Iterator[str]:
    """The last tenth against the first, and each pinned run against the one that was not: another, or its own
    beginning and end."""
    free = {run.database: run for run in runs if run.pin == "none"}
    for run in runs:
        laps = [lap for lap in run.laps if "claim" in lap["verbs"]]
        if not laps:
            continue
        under = [lap for lap in laps if lap["pinned"]]
        if 0 < len(under) < len(laps):
            yield _around(run, laps, under)
            continue
        tenth = max(1, len(laps) // 10)
        first, last = (
            statistics.mean(lap["verbs"]["claim"][0] for lap in some) for some in (laps[:tenth], laps[-tenth:])
        )
        text = (
            f"{run.database}, pin {run.pin}: {run.rate:.0f} jobs/s; a claim at the end {last / first:.2f} of the first"
        )
        other = free.get(run.database)
        if other is not None and other is not run and other.laps:
            text += f"; of those not pinned: {_compared(laps, other.laps)}"
        yield text


def _around(run: Run, laps: Sequence[dict[str, Any]], under: Sequence[dict[str, Any]]) -> str:
    before = [lap for lap in laps if lap["at"] <= under[0]["at"] and not lap["pinned"]]
    after = [lap for lap in laps if lap["at"] > under[-1]["at"] + SETTLED]
    text = f"{run.database}, of what it was before pin {run.pin}: under it {_compared(under, before)}"
    return f"{text}; {SETTLED} s after it {_compared(after, before)}" if after else text


def _compared(laps: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]]) -> str:
    """Throughput, and the medians of all laps' median and 99th percentile of a claim."""
    rate = [statistics.median(lap["rate"] for lap in each) for each in (laps, others)]
    claims = [[lap["verbs"]["claim"] for lap in each if "claim" in lap["verbs"]] for each in (laps, others)]
    middle, slow = ([statistics.median(claim[part] for claim in each) for each in claims] for part in (0, 1))
    return (
        f"throughput {rate[0] / rate[1]:.2f}, median of a claim {middle[0] / middle[1]:.2f}, "
        f"99 % of them {slow[0] / slow[1]:.2f}"
    )


COLOURS = {"none": "#2a7", "read": "#c60", "write": "#a3c"}
WIDTH, HEIGHT, EDGE = 640, 300, 56


def chart(runs: Sequence[Run], verb: str = "claim") -> str:
    """The median of a verb against the jobs done, a panel for each database, as SVG."""
    databases = list(dict.fromkeys(run.database for run in runs))
    size = f'width="{WIDTH}" height="{HEIGHT * len(databases)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, database in enumerate(databases):
        parts += _panel([run for run in runs if run.database == database], verb, number * HEIGHT)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(runs: Sequence[Run], verb: str, top: int) -> Iterator[str]:
    points = {
        run.pin: [(lap["done"], lap["verbs"][verb][0]) for lap in run.laps if verb in lap["verbs"]] for run in runs
    }
    most = max((x for line in points.values() for x, _ in line), default=1)
    highest = max((y for line in points.values() for _, y in line), default=1.0) * 1.1
    bottom, right = top + HEIGHT - EDGE, WIDTH - EDGE
    yield f'<text x="{EDGE}" y="{top + 24}">{runs[0].database}: median of a {verb}, in ms, by jobs done</text>'
    yield f'<path d="M{EDGE} {top + 36}V{bottom}H{right}" fill="none" stroke="black"/>'
    yield f'<text x="{EDGE - 6}" y="{top + 44}" text-anchor="end">{highest:.3g}</text>'
    yield f'<text x="{EDGE - 6}" y="{bottom}" text-anchor="end">0</text>'
    yield f'<text x="{right}" y="{bottom + 18}" text-anchor="end">{most}</text>'
    for run in runs:
        under = [lap for lap in run.laps if lap["pinned"]]
        if 0 < len(under) < len(run.laps):
            # The lap before it ends where it begins.
            begun = max((lap["done"] for lap in run.laps if lap["done"] < under[0]["done"]), default=0)
            left, width = (EDGE + each / most * (right - EDGE) for each in (begun, under[-1]["done"] - begun))
            size = f'width="{width - EDGE:.1f}" height="{bottom - top - 36}"'
            yield f'<rect x="{left:.1f}" y="{top + 36}" {size} fill="#eee"/>'
    for number, (pin, line) in enumerate(points.items()):
        places = [
            f"{EDGE + x / most * (right - EDGE):.1f},{bottom - y / highest * (bottom - top - 36):.1f}" for x, y in line
        ]
        yield f'<polyline points="{" ".join(places)}" fill="none" stroke="{COLOURS[pin]}" stroke-width="2"/>'
        yield f'<text x="{EDGE + number * 110}" y="{bottom + 36}" fill="{COLOURS[pin]}">pin {pin}</text>'
