"""The texts of failures: the line that says why, the cause that similar ones share, and the commands they hint at."""

from __future__ import annotations

import itertools
import re

_TRACEBACK = re.compile(r"([ |]*)(\+ Exception Group )?Traceback \(most recent call last\):")
_EXCEPTION = re.compile(r"(?:\w+\.)*[A-Z]\w*(?::|$)")


def reason_line(error: str | None) -> str:
    """Return the line of an error that says why; empty without an error.

    Behind the last traceback it is the first line of the exception: its message may have more of them, and end with a
    link or a note. Of a group of errors, and of a traceback whose beginning was clipped off, it is the last line. A
    reason in other words begins with its first line.
    """
    lines = (error or "").split("\n")
    for at in range(len(lines) - 1, -1, -1):
        found = _TRACEBACK.fullmatch(lines[at])
        # A group says less than the errors in it.
        if found and found[2]:
            break
        if found:
            # Frames are indented.
            behind = (line.removeprefix(found[1]) for line in lines[at + 1 :])
            said = filter(None, map(str.strip, itertools.dropwhile(lambda line: line[:1] in ("", " "), behind)))
            first = next(said, "")
            # A message may begin with a line end.
            first += f" {next(said, '')}" if re.fullmatch(r"\S+:", first) else ""
            if first:
                return first.rstrip()
            break
    else:
        filled = [line for line in lines if line.strip()]
        is_group = any(line.lstrip().startswith("+-") for line in filled)
        is_clipped = any(line[0] == " " for line in filled) and _EXCEPTION.match(filled[-1])
        if filled and not is_group and not is_clipped:
            return filled[0].strip()
    # Skip the frame around a group.
    texts = (line.strip().removeprefix("| ") for line in reversed(lines))
    return next((line for line in texts if line and not line.startswith("+---")), "")


_OWN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|0x[0-9a-f]+|(?<![a-z0-9])(?=[a-f]*[0-9])[0-9a-f]{8,}(?![a-z0-9])"
    r"|\d+|(?<!\w)(['\"]).{1,200}?\1"
)
"""The parts of an error that differ between failures of one cause: uuids, addresses, numbers and quoted texts."""


def cause_of(error: str | None) -> str:
    """Return the text that failures of one cause share: the line that says why, with "…" in place of uuids, numbers and
    quoted texts, at most 200 characters."""
    return _OWN.sub("…", reason_line(error))[:200]


def literal_of(cause: str) -> str:
    """Return a long text of a cause that stands in each error of it; empty without one.

    ``reason_line`` may have joined the line of an exception's type, which ends with a colon, and the next one. Many
    causes share a type, so that the message goes first.
    """
    message = re.sub(r"^\S+: ", "", cause)
    return max(re.split("…|: ", message), key=len) or max(re.split("…|: ", cause), key=len)


def hinting(text: str, program: str) -> str:
    """Return a text with its hints at commands as a user types them: ``program`` stands for ``jobboard``."""
    if program != "jobboard":
        # The command of a framework knows its handlers.
        text = text.replace("jobboard work MODULE:NAME", "jobboard work")
    return re.sub("(?<=['`])jobboard ", lambda _: f"{program} ", text)
