"""Stories: what simulated processes do, and what happens to them. A seed draws a story, and a file may hold one."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any, NamedTuple

NAMES, GROUPS, KEYS = ("a", "b"), (None, None, "g", "h"), ("k", "l")

TOPICS = (
    "attempts", "by name", "delay", "ends", "expires", "fixed", "group", "key", "limit", "lost", "operate", "pause",
    "priority", "schedule", "wait",
)  # fmt: skip
"""The parts of the library that a story has, or has not: rare mixes come up sooner."""

RUSH = 150_000
"""The µs between two instants at which many scripts act together."""

BRIEF = 0.3
"""The seconds of the shortest lease."""

CLAIMS = ("take", "claim")
ENDS = ("consume", "consume_many", "abandon", "trash", "extend")


class Step(NamedTuple):
    """A verb of a script, after a pause in µs. Other steps name this one by its script and its id.

    A pause below zero ends just behind the next instant that is a multiple of it, together with those of others."""

    id: int
    pause: int
    verb: str
    args: dict[str, Any]


class Trouble(NamedTuple):
    """An event of a process or the server.

    when: in µs. kind: *stop* for ``value`` µs, *cut* off the network for as long, *kill*, *wall* clock set forward by
    ``value``, *step* of the server's clock by ``value``.
    """

    when: int
    kind: str
    process: str
    value: int


Faults = dict[tuple[Any, int], str]


@dataclasses.dataclass
class Story:
    """The scripts of all threads, and their troubles.

    scripts: by a letter for the process, and a digit for the thread. Threads of one process share its board.
    rate: of the requests that have a fault, while ``faults`` is None. faults: by the key of the call, and the number of
    the request in it.
    """

    seed: int
    habits: str
    options: dict[str, Any]
    scripts: dict[str, list[Step]]
    troubles: list[Trouble]
    rate: float = 0.0
    faults: Faults | None = None
    about: str = ""

    @property
    def processes(self) -> list[str]:
        return sorted({name[0] for name in self.scripts})

    def changed(self, **fields: Any) -> Story:
        return dataclasses.replace(self, **fields)

    # Files

    def written(self) -> str:
        """Return the story as JSON, with a line for each step."""
        steps = [
            json.dumps(name) + ": [\n   " + ",\n   ".join(json.dumps(list(step)) for step in steps) + "]"
            for name, steps in self.scripts.items()
        ]
        faults = sorted([list(key), number, fault] for (key, number), fault in (self.faults or {}).items())
        lines = [
            f'"about": {json.dumps(self.about)}',
            f'"seed": {self.seed}, "habits": {json.dumps(self.habits)}, "options": {json.dumps(self.options)}',
            '"scripts": {\n  ' + ",\n  ".join(steps) + "}",
            f'"troubles": {json.dumps([list(each) for each in self.troubles])}',
            f'"faults": {json.dumps(faults)}',
        ]
        return "{" + ",\n ".join(lines) + "}\n"

    @classmethod
    def read(cls, path: Path) -> Story:
        made = json.loads(path.read_text())
        scripts = {name: [Step(*step) for step in steps] for name, steps in made["scripts"].items()}
        faults = {(tuple(key), number): fault for key, number, fault in made["faults"]}
        troubles = [Trouble(*each) for each in made["troubles"]]
        return cls(made["seed"], made["habits"], made["options"], scripts, troubles, 0.0, faults, made["about"])


def draw(seed: int, habits: str | None = None) -> Story:
    """Return the story of a seed."""
    return _Draft(seed, habits).story


class _Draft:
    """The story of a seed, as it is drawn."""

    def __init__(self, seed: int, habits: str | None) -> None:
        self.some = some = random.Random(f"story {seed}")
        drawn = some.choice(("zookeeper", "zookeeper", "etcd", "memory"))
        self.habits = habits or drawn
        self.has = {topic for topic in TOPICS if some.random() < 0.45}
        self.focus = some.choice((None, None, None, "limit", "wait", "slot", "slot", "wear", "due", "purge", "rush"))
        self.has |= {
            "limit": {"limit", "fixed", "ends"},
            "wait": {"wait"},
            "slot": {"limit", "wait", "ends"},
            "wear": {"attempts", "fixed", "ends"},
            "due": {"schedule"},
            "purge": {"operate", "attempts", "ends"},
            "rush": {"delay", "priority"},
        }.get(self.focus or "", set())
        rate = some.choice((0, 0.01, 0.05, 0.15))
        options = {
            "claim_ttl": 3.0,
            "retry_for": some.choice((0.5, 4.0, 4.0)),
            "keep_done": some.choice((0, 1000.0, 2.0)),
        }
        self.pace = some.choice((2_000, 20_000, 600_000))
        self.posts: list[tuple[str, int, int]] = []
        self.names = [
            f"{process}{thread}"
            for process in "ABCDE"[: some.randint(2, 4)]
            for thread in range(some.choice((1, 1, 2)))
        ]
        scripts = {name: self._script(name) for name in self.names}
        self.story = Story(seed, self.habits, options, scripts, self._troubles(), rate)

    def _script(self, name: str) -> list[Step]:
        some = self.some
        self.claims: list[tuple[str, int, int]] = []
        is_worker, is_first = some.random() < 0.7, name == self.names[0]
        steps: list[Step] = []
        for number in range(some.randint(4, 14)):
            pause = int(some.expovariate(1 / self.pace)) if some.random() < 0.8 else int(some.random() * 4e6)
            if self.focus == "rush" and some.random() < 0.6:
                pause = -RUSH
            if number == 0 and is_first:
                verb, args = self._post(1)
            elif self.focus == "due" and number < 3:
                # Posters that meet at the due times of one schedule.
                pause, verb, args = 250_000, "post_due", {}
                if number == 1 and is_first:
                    verb, args = "schedule", {"id": "s", "name": "a", "every": 0.5, "missed": "all"}
            elif number == 1 and is_first and self.focus in ("limit", "slot"):
                rate = some.choice((None, None, (2, 2.0)))
                verb, args = "set_limit", {"name": "a", "per": "name", "concurrency": some.choice((1, 2)), "rate": rate}
            elif self.focus in ("wait", "slot") and name == self.names[-1] and number % 2 == 0:
                verb, args = "take", {"limit": 1, "expiry": None, "names": None, "timeout": 5.0}
            elif self.focus == "wear" and steps and steps[-1].args.get("expiry") == BRIEF:
                # An act that comes close to the end of its lease.
                pause = int(BRIEF * 1e6 - some.random() * 15_000)
                verb, args = self._end((name, number - 1, 0))
            else:
                verb, args = self._step(name, is_worker)
            if verb == "close" and sum(each[0] == name[0] for each in self.names) > 1:
                # A thread may not close a board that another thread uses.
                verb = "look"
            steps.append(Step(number, pause, verb, args))
            if verb == "post":
                self.posts += [(name, number, index) for index in range(len(args["postings"]))]
            if verb in CLAIMS:
                self.claims.append((name, number, 0))
        return steps

    def _step(self, name: str, is_worker: bool) -> tuple[str, dict[str, Any]]:
        some, has = self.some, self.has
        dice = some.random()
        # Where the wakes by free slots are judged, no post wakes the waiters.
        if dice < (0.02 if self.focus == "slot" else 0.12 if is_worker else 0.45):
            return self._post(0)
        if "limit" in has and dice > 0.94:
            return self._limit()
        if "pause" in has and dice > 0.88:
            return some.choice(("pause", "resume")), {"names": some.choice((None, [some.choice(NAMES)]))}
        if "schedule" in has and dice > 0.78:
            return self._schedule()
        if self.posts and "operate" in has and dice > 0.66:
            verbs: tuple[str, ...] = (
                "release",
                "release",
                "release_claim",
                "cancel",
                "stop",
                "restore",
                "restore",
                "purge",
            )
            if self.focus == "purge":
                verbs = ("cancel", "cancel", "purge", "purge", "restore")
            return some.choice(verbs), {"job": some.choice(self.posts[:3] if self.focus == "purge" else self.posts)}
        if self.focus == "purge" and dice > 0.5:
            return "purge_trash", {"age": 0.3}
        if dice > 0.63:
            return some.choice(
                (
                    ("close", {}),
                    ("purge_trash", {"age": some.choice((0, 0.3, 2.0))}),
                    ("tidy", {}),
                    ("look", {}),
                    ("outcomes", {}),
                    ("outcome", {"job": some.choice(self.posts or [(name, 0, 0)])}),
                )
            )
        if self.claims and some.random() < 0.62:
            return self._end(some.choice(self.claims[-2:]))
        leases = (None, BRIEF, 1.0, 4.0) if self.focus != "wear" else (BRIEF, BRIEF, BRIEF, None)
        expiry = some.choice(leases) if "fixed" in has else None
        if self.posts and some.random() < 0.25:
            return "claim", {"job": some.choice(self.posts), "expiry": expiry}
        timeout = some.choice((0, 5.0)) if "wait" in has else 0
        names = some.choice((None, None, None, ["a"]))
        return "take", {"limit": some.choice((1, 1, 1, 2, 5)), "expiry": expiry, "names": names, "timeout": timeout}

    def _end(self, job: tuple[str, int, int]) -> tuple[str, dict[str, Any]]:
        some, has = self.some, self.has
        args: dict[str, Any] = {"job": job}
        verb = some.choice(
            ("consume",) * 5
            + ("extend", "extend", "abandon", "trash", "consume_many")
            + ("abandon",) * (3 * ("ends" in has))
            + ("read_lost",) * (3 * ("lost" in has))
        )
        if verb == "extend":
            args["expiry"] = some.choice((None, 1.0, 3.0))
        if verb == "abandon":
            args |= {"delay": some.choice((None, 0.3, 2.0)) if "delay" in has else None}
            args |= {"error": some.choice((None, "broken"))}
        if verb in ("consume", "abandon", "extend") and "by name" in has and some.random() < 0.3:
            args["by_name"] = True
        return verb, args

    def _post(self, more: int) -> tuple[str, dict[str, Any]]:
        return "post", {"postings": [self._posting() for _ in range(self.some.choice((1, 1, 2, 3)) + more)]}

    def _posting(self) -> dict[str, Any]:
        some, has = self.some, self.has
        posting: dict[str, Any] = {"name": some.choice(NAMES if "limit" not in has else ("a", "a", "b"))}
        if "group" in has:
            posting["group"] = some.choice(GROUPS)
        if "priority" in has:
            posting["priority"] = some.choice((50, 0, 0, -50))
        if "delay" in has:
            posting["delay"] = some.choice((None, None, 0.05, 2.0))
        if "expires" in has:
            posting["expires"] = some.choice((None, 3.0, 4.0) if posting.get("delay") else (None, 0.05, 0.5, 4.0))
        if "attempts" in has:
            posting["max_attempts"] = some.choice((None, 1, 2) if self.focus != "wear" else (1, 1, 2))
        if "key" in has and some.random() < 0.7:
            posting |= {"key": some.choice(KEYS), "key_for": some.choice((None, None, 3.0))}
            posting |= {"on_key": some.choice(("keep", "replace"))}
        return posting

    def _limit(self) -> tuple[str, dict[str, Any]]:
        some = self.some
        name = some.choice(NAMES)
        if some.random() < 0.2:
            return "remove_limit", {"name": name}
        bounds = ((1, None), (2, None), (None, (1, 2.0)), (None, (2, 1.0)), (1, (3, 3.0)))
        concurrency, rate = some.choice(bounds)
        per = some.choice(("name", "group"))
        return "set_limit", {"name": name, "per": per, "concurrency": concurrency, "rate": rate}

    def _schedule(self) -> tuple[str, dict[str, Any]]:
        some = self.some
        name, every, missed = some.choice(NAMES), some.choice((0.5, 2.0)), some.choice(("one", "all"))
        schedule = {"id": some.choice("st"), "name": name, "every": every, "missed": missed}
        due: tuple[str, dict[str, Any]] = ("post_due", {})
        return some.choice((("schedule", schedule), due, due, due, ("unschedule", {"id": some.choice("st")})))

    def _troubles(self) -> list[Trouble]:
        some, troubles = self.some, []
        for _ in range(some.choice((0, 0, 1, 2, 3))):
            # Threads of one process die together, and have no network between them.
            kinds = ["stop", "wall", *(["cut", "kill"] if self.habits != "memory" else [])]
            kinds += ["step"] * (some.random() < 0.3)
            kind, who = some.choice(kinds), some.choice(self.names)[0]
            if kind in ("wall", "step") and self.habits == "etcd":
                # The clocks of clients are the only ones, and its page asks for equal ones.
                continue
            sign = some.choice((1, 1, -1)) if kind in ("wall", "step") else 1
            value = int(some.choice((1, 2.5, 4, 8)) * 1e6) * sign
            troubles.append(Trouble(int(some.random() * 12 * self.pace), kind, who, value))
        return troubles
