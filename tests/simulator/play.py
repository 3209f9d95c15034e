"""Plays of stories: one world each, from the connection of all boards until nothing is left on the board."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from typing import Any

from jobboard.board import JobBoard
from jobboard.exceptions import JobBoardError
from jobboard.notifier import LOST
from tests.simulator.actors import Actor, Call, Stage
from tests.simulator.answers import Answers
from tests.simulator.driver import STORES
from tests.simulator.oracle import ON_BOARD, Oracle
from tests.simulator.server import FAULTS, HABITS, Server
from tests.simulator.stories import Story, Trouble
from tests.simulator.world import Process, Task, World, installed, running

LOG = logging.getLogger("jobboard")


class Result:
    """The outcome of a story: its faults, its coverage, and what happened in it."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self.fired: list[Any] = []
        self.told: list[str] = []

    @property
    def kinds(self) -> set[str]:
        return {kind_of(fault) for fault in self.faults}


def kind_of(fault: str) -> str:
    return fault.partition(":")[0]


def play(story: Story, tell: bool = False) -> Result:
    """Play a story in a world of its own, and judge it."""
    world, result, errors = World(story.seed), Result(story), _Errors()
    level, propagate = LOG.level, LOG.propagate
    LOG.addHandler(errors)
    LOG.propagate, LOG.level = False, logging.ERROR
    with installed():
        try:
            _Play(world, result).run(tell)
        except Exception as error:  # noqa: BLE001 - whatever the library has led to
            result.faults.append(f"stuck: {error!r}")
        finally:
            world.end()
            LOG.removeHandler(errors)
            LOG.propagate, LOG.level = propagate, level
    result.faults += [*errors.logged, *world.failures]
    return result


class _Errors(logging.Handler):
    """The errors that the library logs. None of them has a place in a simulation."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.logged: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not World.current.is_over:
            self.logged.append(f"logged: {record.getMessage()}: {record.exc_info and record.exc_info[1]!r}")


class _Play:
    """The parts of one play."""

    def __init__(self, world: World, result: Result) -> None:
        self.world, self.result, self.story = world, result, result.story
        self.is_healthy = True
        story, habits = self.story, HABITS[self.story.habits]
        ttl = int(story.options["claim_ttl"] * 1e6)
        self.server = server = Server(world, habits, ttl, self._fault, result.counts)
        self.stage = Stage(world)
        self.oracle = oracle = Oracle(server, self.stage, int(story.options["keep_done"] * 1e6))
        self.answers = self.stage.answers = Answers(oracle, self.stage)
        server.saw = oracle.saw
        self.processes = {name: Process(world, name) for name in story.processes}

    def _fault(self, key: Any, number: int) -> str | None:
        """Return the fault of a request, as the story has it or as the seed draws it."""
        story = self.story
        if self.is_healthy:
            return None
        if story.faults is not None:
            return story.faults.get((key, number))
        if self.world.draw("fault", key, number) >= story.rate:
            return None
        return FAULTS[int(self.world.draw("which", key, number) * len(FAULTS))]

    def run(self, tell: bool) -> None:
        world, story, oracle = self.world, self.story, self.oracle
        processes = self.processes.values()
        connecting = [process.spawn("connect", functools.partial(self._connect, process)) for process in processes]
        world.run(tasks=connecting)
        self.begun = world.now
        self.is_healthy = False
        playing = []
        for script, steps in story.scripts.items():
            process = self.processes[script[0]]
            playing.append(process.spawn(script, Actor(self.stage, process, script, steps).run))
        for trouble in story.troubles:
            if trouble.process in self.processes:
                world.after(trouble.when, functools.partial(self._trouble, trouble))
        world.run(world.now + 60_000_000, playing)
        self._heal()
        world.run(world.now + 30_000_000, playing)
        world.run(world.now + 15_000_000)
        self._check_keepers()
        world.run(world.now + 3_600_000_000, [self._audit()])
        self.answers.check()
        oracle.check_indexes()
        self.result.faults += oracle.faults
        self.result.fired = self.server.fired
        self.result.counts["stories"] += 1
        self.result.counts["commits"] += self.server.commits
        if tell:
            self.result.told = self._tell()

    def _connect(self, process: Process) -> None:
        board = self.stage.boards[process.name] = self._board(process)

        def lost(event: str, details: dict[str, Any]) -> None:
            self.stage.losses.append((self.world.now, process, details["job"].claim))

        board.notifier.register(LOST, lost)
        board.connect()

    def _board(self, process: Process) -> JobBoard:
        conf = {"board": "simulated", **self.story.options}
        client = (self.server, process)
        return JobBoard("simulated", conf, client=client, store=STORES[self.server.habits.keeps])

    # Troubles

    def _trouble(self, trouble: Trouble) -> None:
        world, server, process, value = self.world, self.server, self.processes[trouble.process], trouble.value
        process.troubled.append((world.now, world.now + abs(value)))
        self.result.counts[f"trouble: {trouble.kind}"] += 1
        if trouble.kind == "stop":
            process.is_stopped = True
            world.after(value, process.resume)
        elif trouble.kind == "cut":
            process.cut_until = world.now + value
        elif trouble.kind == "kill":
            process.is_dead = True
        elif trouble.kind == "wall":
            process.wall += value
        elif trouble.kind == "step":
            server.step += value
            self.oracle.steps.append((world.now, server.step))

    def _heal(self) -> None:
        self.is_healthy = True
        for process in self.processes.values():
            process.cut_until = 0
            process.resume()

    # The end

    def _check_keepers(self) -> None:
        """Report claims that the board keeps and no handle holds: nobody would ever get their jobs."""
        oracle = self.oracle
        for uuid, versions in oracle.versions.items():
            record = versions[-1].record
            if record is None or record.keeper is None or oracle.state(versions[-1], self.world.now) != "CLAIMED":
                continue
            board = self.stage.boards.get((record.who or "?")[0])
            held = (
                set()
                if board is None
                else {(claim.uuid, claim.token) for claim in board.claims.held() if not claim.seen_lost}
            )
            if (uuid, record.token) not in held:
                oracle.fault(f"held by nobody: {oracle.short(uuid)}, claimed as {record.who}")

    def _audit(self) -> Task:
        """Close all boards, and have one more process look at what is left, and drain it."""
        world, oracle = self.world, self.oracle
        living = {name: process for name, process in self.processes.items() if not process.is_dead}
        closing = [process.spawn("close", self.stage.boards[name].close) for name, process in living.items()]
        world.run(world.now + 30_000_000, closing)
        world.run(world.now + 10_000_000)
        oracle.faults += [f"hangs: {task.name}" for task in world.tasks if not (task.is_done or task.process.is_dead)]
        return Process(world, "Z").spawn("audit", self._drain)

    def _drain(self) -> None:
        oracle, world = self.oracle, self.world
        process = running().process
        board = self._board(process)

        def call(number: int, verb: str) -> Call:
            running().call = made = Call(process, ("Z0", number), verb, {}, world.now)
            return made

        call(0, "look")
        board.connect()
        self._compare(board)
        board.resume()
        if names := board.paused().names:
            board.resume(names)
        for number in range(1, 1000, 2):
            call(number, "take")
            job = board.claim_next("Z0", timeout=30.0)
            if job is None:
                break
            made = call(number + 1, "consume")
            made.tokens = {job.uuid: job.claim.token}
            try:
                job.claim.consume()
            except JobBoardError as error:
                oracle.fault(f"not drained: {oracle.short(job.uuid)}: {error!r}")
        for uuid, versions in oracle.versions.items():
            if (state := oracle.state(versions[-1], world.now)) in ON_BOARD:
                oracle.fault(f"nobody can have it: {oracle.short(uuid)} stays {state}")
        board.close()

    def _compare(self, board: JobBoard) -> None:
        """Compare what the board shows with the records."""
        oracle = self.oracle
        stood = {uuid: oracle.state(versions[-1], self.world.now) for uuid, versions in oracle.versions.items()}
        shown = {job.uuid: str(job.seen_state) for job in board.iterjobs(ensure_fresh=True)}
        shown |= {job.uuid: "TRASHED" for job in board.trashed()}
        for uuid, state in stood.items():
            if shown.get(uuid) != state:
                oracle.fault(f"shown {shown.get(uuid)}, stands {state}: {oracle.short(uuid)}")
        counts = board.stats()
        for state, shown_count in zip(
            ("UNCLAIMED", "SCHEDULED", "CLAIMED", "TRASHED"),
            (counts.unclaimed, counts.scheduled, counts.claimed, counts.trashed),
            strict=True,
        ):
            if shown_count != sum(each == state for each in stood.values()):
                oracle.fault(f"counted: {shown_count} jobs {state}")

    def _tell(self) -> list[str]:
        """Return the story, as it happened: calls by their begin, and below them the jobs that they have changed."""
        oracle, calls = self.oracle, self.stage.calls
        lines = [
            (self.begun + each.when, f"{each.kind} {each.process} {each.value / 1e6:g} s")
            for each in self.story.troubles
        ]
        lines += [
            (when, f"LOST in {process.name}: {oracle.short(claim.uuid)}") for when, process, claim in self.stage.losses
        ]
        for call in calls:
            faults = [f"request {number}: {fault}" for key, number, fault in self.server.fired if key == call.key]
            told = call.told
            if isinstance(told, list):
                told = [oracle.short(each.uuid) if hasattr(each, "uuid") else each for each in told]
            elif isinstance(told, Exception):
                told = type(told).__name__
            args = [f"{name}={value}" for name, value in call.args.items() if value not in (None, 0) and name != "job"]
            what = ", ".join([*(oracle.short(job.uuid) for job in call.jobs), *args])
            took = "never" if call.ended is None else f"{(call.ended - call.began) / 1e3:.1f} ms"
            lines.append(
                (call.began, f"{call}({what}) -> {call.outcome} {told or ''} in {took} {'; '.join(faults)}".rstrip())
            )
            for each in call.effects:
                token = "" if each.has is None else f", token {str(each.has.token)[-9:]}"
                change = f"{oracle.short(each.uuid)} {each.stood} -> {each.stands}{token}"
                lines.append((each.when, f"        {call}: {change}"))
        keys = {call.key for call in calls}
        lines += [
            (0, f"request {number} of {key}: {fault}") for key, number, fault in self.server.fired if key not in keys
        ]
        return [f"{when / 1e3:10.1f} ms  {text}" for when, text in sorted(lines, key=lambda line: line[0])]
