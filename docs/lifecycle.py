"""The picture of a job's lifecycle, docs/images/lifecycle.svg: drawn from the table of transitions in jobboard.states.

Run it as ``python docs/lifecycle.py``. The places of states and arrows are set below. Which arrows there are, and which
verbs stand beside them, is the table's: an arrow without a place, or a place without an arrow, is an error.
"""

from pathlib import Path

from jobboard.states import FINISHES, TRANSITIONS, State, Transition, Verb

PICTURE = Path(__file__).parent / "images" / "lifecycle.svg"

# The ends of the arrows that lead from nothing and to nothing.
START, COMPLETE, GONE = "start", str(State.COMPLETE), "gone"
UNCLAIMED, SCHEDULED, CLAIMED, TRASHED = (
    str(state) for state in (State.UNCLAIMED, State.SCHEDULED, State.CLAIMED, State.TRASHED)
)
OFF = {Verb.CONSUME: COMPLETE, Verb.PURGE: GONE}

NAMES = {
    Verb.DUE: "the due time comes",
    Verb.LAPSE: "the lease lapses",
    Verb.EXPIRE: "it expires",
    Verb.REPLACE: "replace",
    Verb.STOP: "cancel (running)",
}

CLOCK = frozenset({Verb.DUE, Verb.LAPSE, Verb.EXPIRE})

# The centre of each box.
PLACES = {
    START: (-30, 165),
    SCHEDULED: (190, 80),
    UNCLAIMED: (190, 250),
    CLAIMED: (540, 250),
    COMPLETE: (770, 250),
    TRASHED: (370, 440),
    GONE: (590, 440),
}

# The path of each arrow, where its label is, and which end of the label is there.
ARROWS = {
    (START, UNCLAIMED): ("M-26 175 Q10 244 122 249", (36, 222), "start"),
    (START, SCHEDULED): ("M-26 155 Q10 96 122 89", (24, 128), "start"),
    (SCHEDULED, UNCLAIMED): ("M206 102 V226", (214, 156), "start"),
    (UNCLAIMED, SCHEDULED): ("M174 228 V104", (166, 172), "end"),
    (SCHEDULED, SCHEDULED): ("M150 58 C150 20 220 20 220 56", (232, 36), "start"),
    (UNCLAIMED, UNCLAIMED): ("M148 272 C148 312 196 312 194 274", (172, 322), "end"),
    (UNCLAIMED, CLAIMED): ("M256 242 H472", (364, 234), "middle"),
    (CLAIMED, UNCLAIMED): ("M474 258 H258", (396, 278), "middle"),
    (CLAIMED, CLAIMED): ("M520 228 C520 186 570 186 566 226", (584, 204), "start"),
    (CLAIMED, SCHEDULED): ("M500 228 Q420 96 258 82", (414, 118), "start"),
    (CLAIMED, COMPLETE): ("M606 250 H702", (654, 240), "middle"),
    (CLAIMED, TRASHED): ("M540 272 Q516 376 438 422", (536, 320), "start"),
    (UNCLAIMED, TRASHED): ("M224 272 Q262 376 318 420", (226, 386), "end"),
    (SCHEDULED, TRASHED): ("M124 66 H-52 Q-68 66 -68 82 V424 Q-68 440 -52 440 H302", (120, 432), "middle"),
    (TRASHED, UNCLAIMED): ("M372 418 Q336 320 240 274", (352, 366), "start"),
    (TRASHED, GONE): ("M436 440 H558", (497, 432), "middle"),
}

SVG = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="-100 0 960 540" role="img" aria-labelledby="title">
<title id="title">The lifecycle of a job</title>
<style>
svg {{ --paper: #ffffff; --ink: #1f2933; --line: #52606d; --box: #e4edf7; --off: #eceff2; --clock: #9a4a00 }}
@media (prefers-color-scheme: dark) {{
  svg {{ --paper: #1b1f24; --ink: #e6e9ec; --line: #9aa5b1; --box: #2b4159; --off: #363d45; --clock: #f0b070 }}
}}
text {{ font: 16px system-ui, sans-serif; fill: var(--ink) }}
.state {{ font-weight: 600; text-anchor: middle }}
.clock {{ font-style: italic; fill: var(--clock) }}
path {{ fill: none; stroke: var(--line); stroke-width: 1.5; marker-end: url(#head) }}
.paper {{ fill: var(--paper); stroke: var(--line); stroke-opacity: 0.3 }}
.box {{ fill: var(--box); stroke: var(--line) }}
.off {{ fill: var(--off); stroke: var(--line); stroke-dasharray: 4 3 }}
#head path {{ fill: var(--line); stroke: none; marker-end: none }}
</style>
<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">
<path d="M0 1 L9 5 L0 9 z"/></marker></defs>
<rect class="paper" x="-99.5" y="0.5" width="959" height="539" rx="8"/>
{arrows}
{boxes}
<text x="-76" y="500">{late}</text>
<text x="-76" y="520"><tspan class="clock">Italics</tspan>: the server's clock does it.</text>
</svg>
"""


def is_late(row: Transition) -> bool:
    """Return whether the verb is one of a holder whose claim has lapsed."""
    return row.source == State.UNCLAIMED and row.verb in FINISHES | {Verb.EXTEND}


def arrows() -> dict[tuple[str, str], list[tuple[str, bool]]]:
    """Return the verbs of each arrow, and whether the clock is their caller."""
    found: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for row in TRANSITIONS:
        # A stop of a job that nobody holds is a cancel.
        if is_late(row) or (row.verb == Verb.STOP and row.source != State.CLAIMED):
            continue
        for target in row.targets:
            source = START if row.source is None else str(row.source)
            place = OFF[row.verb] if target is None else str(target)
            label = NAMES.get(row.verb, str(row.verb))
            if place == TRASHED and len(row.targets) > 1:
                label += " (attempts used up)"
            elif place == SCHEDULED and len(row.targets) > 1:
                label += " (delay=)"
            found.setdefault((source, place), []).append((label, row.verb in CLOCK))
    return found


def draw() -> str:
    """Return the picture.

    :raises ValueError: the table has an arrow that has no place here, or the other way round."""
    found = arrows()
    if found.keys() != ARROWS.keys():
        raise ValueError(f"arrows without a place, or places without an arrow: {found.keys() ^ ARROWS.keys()}")
    lines = []
    for key, (path, (x, y), anchor) in ARROWS.items():
        lines.append(f'<path d="{path}"/>')
        for number, (label, is_clock) in enumerate(sorted(found[key])):
            mark = ' class="clock"' if is_clock else ""
            lines.append(f'<text{mark} x="{x}" y="{y + 19 * number}" text-anchor="{anchor}">{label}</text>')
    boxes = []
    for name, (x, y) in PLACES.items():
        if name == START:
            boxes.append(f'<circle cx="{x}" cy="{y}" r="8" class="off"/>')
            continue
        half = 30 if name == GONE else 66
        kind = "off" if name in OFF.values() else "box"
        boxes.append(f'<rect class="{kind}" x="{x - half}" y="{y - 22}" width="{2 * half}" height="44" rx="6"/>')
        boxes.append(f'<text class="state" x="{x}" y="{y + 5}">{name}</text>')
    *first, last = sorted({str(row.verb) for row in TRANSITIONS if is_late(row)})
    verbs = f"{', '.join(first)} or {last}"
    late = f"After a lapse, the holder may still {verbs} the job, until another claims it."
    return SVG.format(arrows="\n".join(lines), boxes="\n".join(boxes), late=late)


if __name__ == "__main__":
    PICTURE.write_text(draw())
