"""The coverage of many stories: what must have happened in them, or their silence would prove nothing."""

from __future__ import annotations

from collections import Counter

REQUIRED = {
    "LOST events": "a board has reported the loss of a claim",
    "answers: ClaimLost": "an act has met a lost claim",
    "answers: NotFound": "an act has met a job that is gone",
    "answers: UnclaimableJob": "a cancel has met a claimed job",
    "claims": "a job was claimed",
    "claims read as lost": "a holder has read claim.lost as true",
    "due times": "a delayed job has become due",
    "expiries": "an expired job was written down",
    "given back": "a call has given back a claim that nobody holds",
    "keys kept": "a post has met its key",
    "keys kept by windows": "a post has met the window of a key whose job is gone",
    "lapses": "a lapsed lease was written down",
    "late commits": "a commit was done after its client had given it up",
    "late commits refused": "a commit was refused after its client had given it up",
    "limits full": "as many claims live as a limit allows",
    "posts by schedules": "a schedule has posted a job",
    "rates full": "as many claims have begun as a rate allows",
    "refused: before": "a commit has come after the instant before which it had to come",
    "refused: gate": "pauses or limits have changed between a reading and its commit",
    "refused: job": "a job has changed between a reading and its commit",
    "refused: lives": "a session has ended before a commit that relies on it",
    "refused: next": "two posts have drawn the same numbers",
    "refused: side/answer": "a late try has met the answer of a later one",
    "refused: side/key": "a key has changed between a reading and its commit",
    "refused: side/schedule": "two posters have met at a schedule",
    "refused: side/scope": "two claims have met at a limit",
    "replays": "a call whose reply was lost has succeeded by a repetition",
    "revivals": "the holder of a lapsed claim has extended it",
    "sessions expired": "a session has expired",
    "trouble: cut": "a process was cut off",
    "trouble: kill": "a process was killed",
    "trouble: step": "the server's clock was set",
    "trouble: stop": "a process was stopped",
    "trouble: wall": "a client's clock was set",
    "waits woken by slots": "a wait has ended as a claim has left its slot",
    "watches late": "a watch was late",
}
"""The counters that must not be zero, and what each one counts."""


def missing(counts: Counter[str]) -> list[str]:
    """Return the required counters that are zero, each with its meaning."""
    return [f"{name}: {meaning}" for name, meaning in REQUIRED.items() if not counts[name]]
