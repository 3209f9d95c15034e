"""The pages of a board, and the forms on them. A page only reads; forms alone change anything."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, quote

from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response

from jobboard import logs
from jobboard.board import UNREADABLE, JobBoard
from jobboard.exceptions import JobBoardError, JobFailure, NoKey, NotFound
from jobboard.job import Entity, Job
from jobboard.obstacles import obstacles
from jobboard.primitives import BoardStats, Per
from jobboard.priorities import JobPriority
from jobboard.reading import LISTED, Sample, has_index_by_name
from jobboard.reasons import reason_line
from jobboard.results import Outcome
from jobboard.states import (
    CLAIMED,
    COMPLETE,
    FAILURES,
    SCHEDULED,
    TRASHED,
    UNCLAIMED,
    Failure,
    FailureKind,
    Record,
    State,
)
from jobboard.web import charts, text
from jobboard.web.acts import ACTS, STATES, WORDS, ActTally, Filters, JobAct, act_on_chosen, act_on_found, jobs_of
from jobboard.web.visits import Visit

LOG = logs.Log(__name__)

PER_PAGE = 50
LOOKED = 5_000
"""The number of jobs that a search looks at for one page. The page says so, and leads further."""

MATCHES = 1_000
"""The number of matches up to which a confirmation counts them."""

UUID = r"[\w-]{1,64}"

REASON = 500
"""The longest reason, in characters."""

POINTS = 60
"""The number of samples in the line of a figure."""


def boards(visit: Visit) -> Response:
    """All boards, or the only one."""
    readers = visit.site.readers
    if len(readers) == 1:
        return RedirectResponse(f"{visit.root}/{quote(next(iter(readers)))}/", 303)
    looks = {slug: reader.look(("stats",)) for slug, reader in readers.items()}
    return visit.render("boards.html", looks=looks)


def state(visit: Visit) -> Response:
    """The live figures of a board, and the version of a watched job, for the script of an open page."""
    look = visit.look
    counts = {} if look.stats is None else _counts(look.stats)
    uuid = visit.request.query_params.get("job", "")
    watched = visit.reader.watch(uuid) if re.fullmatch(UUID, uuid, re.ASCII) else None
    return JSONResponse(
        {
            "counts": {name: text.number(count, look.cap) for name, count in counts.items()},
            "trouble": visit.trouble,
            "complete": look.causes is not None and look.names is not None,
            "version": None if watched is None else _version(watched.record, watched.state),
        }
    )


def _counts(stats: BoardStats) -> dict[str, int]:
    return {
        "jobs": stats.on_board,
        "waiting": stats.unclaimed,
        "running": stats.claimed,
        "delayed": stats.scheduled,
        "trash": stats.trashed,
    }


def _version(record: Record | None, state: State) -> str:
    """Return a text that differs between any two states of a job, as its page shows them."""
    if record is None:
        return "gone"
    return f"{state}-{record.token}-{record.modified_on}-{zlib.crc32(str(record.note).encode())}"


def overview(visit: Visit) -> Response:
    """One sentence, what needs a person, figures with lines, and short lists."""
    look, samples = visit.look, list(visit.reader.samples)[-POINTS:]
    if look.stats is None and "stats" in look.failed:
        raise look.failed["stats"]
    figures = []
    if look.stats is not None:
        series = [_counts(sample.stats) for sample in samples]
        for word in ("waiting", "running", "delayed", "trash"):
            values = [counts[word] for counts in series]
            change = _per_minute(samples, values)
            figures.append((word, _counts(look.stats)[word], charts.line(values, 120, 28), change))
    counted = sum(each.waiting + each.delayed + each.running for each in look.names or ())
    by_index = has_index_by_name(visit.reader.board)
    return visit.render(
        "overview.html",
        figures=figures,
        consumed=_per_minute(samples, [sample.consumed for sample in samples], only_up=True),
        bars=charts.bars(look.minutes, 600, 72) if look.minutes and any(look.minutes) else None,
        counted=None if by_index or look.stats is None or counted >= look.stats.on_board else counted,
        hung=[each for each in look.conductors() if _number(each, "hung")],
        reason=reason_line,
    )


def _per_minute(samples: Sequence[Sample], values: Sequence[int], only_up: bool = False) -> float | None:
    """Return the change of a value a minute; None before two samples.

    :param only_up: leave out steps down. A conductor that ends takes its tally along.
    """
    if len(samples) < 2 or samples[-1].now <= samples[0].now:
        return None
    steps = (after - before for before, after in itertools.pairwise(values))
    change = sum(step for step in steps if step > 0 or not only_up)
    return change / (samples[-1].now - samples[0].now) * 60


def jobs(visit: Visit) -> Response:
    """Waiting, running or delayed jobs."""
    query = visit.request.query_params
    word = query.get("state", "waiting")
    if word in ("trash", "done"):
        return RedirectResponse(visit.url(word, **Filters.of(query).given()), 303)
    if word not in ("waiting", "running", "delayed"):
        raise NotFound(f"no job is {word!r}: jobs are waiting, running or delayed")
    return _list(visit, "jobs.html", word, ["stop", "release"] if word == "running" else ["cancel"])


def trash(visit: Visit) -> Response:
    """The trash, by causes and by jobs."""
    return _list(visit, "trash.html", "trash", ["restore", "again", "purge"])


def done(visit: Visit) -> Response:
    """The outcomes of consumed jobs."""
    return _list(visit, "done.html", "done", ["again", "purge"])


def _list(visit: Visit, template: str, word: str, acts: Sequence[str]) -> Response:
    query = visit.request.query_params
    filters = Filters.of(query)
    found = visit.board.find_page(PER_PAGE, after=query.get("after"), at_most=LOOKED, **filters.arguments(STATES[word]))
    return visit.render(
        template,
        filters=filters,
        found=found,
        word=word,
        acts={name: ACTS[name] for name in acts} if visit.may_act else {},
        names=[each.name for each in visit.look.names or ()][:200],
        priority=_priority,
        reason=reason_line,
    )


def _priority(job: Job) -> str:
    return str(JobPriority.convert(job.priority)).lower().replace("_", " ") if job.priority else ""


def job(visit: Visit) -> Response:
    """One job: its timeline, progress, details and result, its claim, and why it waits."""
    job = _job(visit)
    outcome = visit.board.outcome(job) if job.seen_state == COMPLETE else None
    waits = [] if job.seen_state not in (UNCLAIMED, SCHEDULED) else obstacles(visit.board, job)
    values = {"details": None if job.content is UNREADABLE else _value(visit, job, lambda: job.details)}
    if outcome is not None and outcome.refused is None:
        values["result"] = _value(visit, job, lambda: outcome.result)
    if job.record.note is not None:
        values["checkpoint"] = _value(visit, job, lambda: job.checkpoint)
    lease = job.record.lock_until if job.seen_state == CLAIMED else None
    return visit.render(
        "job.html",
        job=job,
        word=WORDS[job.seen_state],
        outcome=outcome,
        values=values,
        book=_book(job),
        waits=waits,
        steps=list(_steps(job, outcome)),
        acts={name: act for name, act in ACTS.items() if job.seen_state in act.states} if visit.may_act else {},
        version="gone" if job.seen_state == COMPLETE else _version(job.record, job.seen_state),
        lease=None if lease is None else lease / 1e6 - visit.look.now,
        priority=_priority(job),
        reason=reason_line,
    )


def _value(visit: Visit, job: Job, read: Callable[[], Any]) -> str | None:
    """Return a value of a job as text; None where the board can't decrypt it."""
    try:
        return visit.details(job, read())
    except NoKey:
        return None


def _book(job: Job) -> str:
    """Return the name and uuid of a job's logbook; empty without one, or where the board can't decrypt it."""
    with contextlib.suppress(NoKey):
        return " ".join(filter(None, (job.book_name, job.book_uuid)))
    return ""


def _job(visit: Visit) -> Job:
    """Return the job of an address, without its details where they can't be read."""
    uuid = visit.request.path_params["uuid"]
    try:
        job = visit.board.get(uuid)
    except NotFound:
        raise
    except JobFailure:
        [found] = jobs_of(visit.board, [uuid])
        if found is None:
            raise
        job = Job(visit.board, found.record, UNREADABLE, found.seen_state)
    return job


@dataclass(frozen=True)
class TimelineStep:
    """A point of a job's timeline."""

    kind: str
    title: str
    when: datetime.datetime | None = None
    who: str | None = None
    text: str | None = None
    is_ahead: bool = False


_TITLES = {
    FailureKind.LAPSE: "Attempt {} lost its claim",
    FailureKind.EXHAUSTED: "The attempts were used up",
    FailureKind.RETRY: "Attempt {} asked to be repeated",
    FailureKind.TIMEOUT: "Attempt {} took too long",
    FailureKind.REJECTED: "Attempt {} gave the job up",
    FailureKind.RELEASED: "Attempt {} was released by hand",
    FailureKind.CANCELLED: "Cancelled by hand",
    FailureKind.EXPIRED: "Expired before its first attempt",
    FailureKind.POISON: "The job could not be read",
    FailureKind.RESTORED: "Restored by hand",
}


def _steps(job: Job, outcome: Outcome | None) -> Iterator[TimelineStep]:
    """Yield what has happened to a job, the first first: its post, what is remembered of its attempts, its state."""
    yield TimelineStep(
        "posted", f"Posted by the schedule {job.schedule[0]}" if job.schedule else "Posted", job.created_on
    )
    if len(job.errors) >= FAILURES:
        yield TimelineStep("past", "Earlier failures are no longer remembered")
    for failure in job.errors:
        yield _failure_step(failure)
    if job.seen_state == CLAIMED:
        yield TimelineStep("running", f"Attempt {job.attempts} is running", job.last_modified, job.owner)
    elif job.seen_state == SCHEDULED:
        yield TimelineStep("delayed", "Waits until it is due", job.due, is_ahead=True)
    elif job.seen_state == UNCLAIMED:
        yield TimelineStep("waiting", "Waits for a worker")
    elif job.seen_state == TRASHED:
        yield TimelineStep("failed", "Went to the trash", job.last_modified)
    elif outcome is not None:
        seconds = (outcome.ended_on - outcome.begun_on).total_seconds()
        yield TimelineStep("done", f"Done in {text.took(seconds)}", outcome.ended_on, outcome.who)


def _failure_step(failure: Failure) -> TimelineStep:
    title = _TITLES.get(failure.kind, "Attempt {} failed")  # type: ignore[call-overload]
    kind = "posted" if failure.kind == FailureKind.RESTORED else "failed"
    return TimelineStep(kind, title.format(failure.attempt), failure.when, failure.who, failure.text)


def value(visit: Visit) -> Response:
    """The whole details, result or checkpoint of a job, as a file. A browser never takes it for a page."""
    job, what = _job(visit), visit.request.path_params["what"]
    values: dict[str, Callable[[], Any]] = {
        "details": lambda: job.details,
        "result": lambda: visit.board.result_of(job),
        "checkpoint": lambda: job.checkpoint,
    }
    if what not in values:
        raise NotFound(f"a job has no {what!r}")
    headers = {"Content-Disposition": f'attachment; filename="{what}.json"'}
    return PlainTextResponse(visit.details(job, values[what]()), headers=headers)


def schedules(visit: Visit) -> Response:
    """The schedules of the board."""
    return visit.render("schedules.html", schedules=visit.board.schedules())


def limits(visit: Visit) -> Response:
    """The limits and pauses of the board."""
    look = visit.look
    running = Counter(job.name for job in look.claims or ())
    if look.claims is not None and len(look.claims) == LISTED:
        running = Counter({each.name: each.running for each in look.names or ()})
    names = [each.name for each in look.names or ()][:200]
    return visit.render("limits.html", rules=visit.board.engine.rules(), running=running, names=names)


def conductors(visit: Visit) -> Response:
    """The conductors with their jobs, and other holders of claims."""
    look = visit.look
    claims: dict[str | None, list[Job]] = {}
    for job in look.claims or ():
        claims.setdefault(job.owner, []).append(job)
    found = [(each, claims.pop(each.name, [])) for each in look.conductors()]
    others = [entity for entity in look.entities or () if entity.kind != "conductor"]
    return visit.render(
        "conductors.html",
        conductors=found,
        others=others,
        loose=[job for held in claims.values() for job in held],
        count=_number,
        started=_started,
        hanging=_hanging,
    )


# Metadata of entities may be anything: other programs register conductors, too.


def _number(entity: Entity, field: str) -> int:
    found = entity.metadata.get(field)
    return found if isinstance(found, int) else 0


def _started(entity: Entity) -> datetime.datetime | None:
    try:
        started = datetime.datetime.fromisoformat(str(entity.metadata.get("started")))
    except ValueError:
        return None
    return started if started.tzinfo else None


def _hanging(entity: Entity) -> list[tuple[str, str, float]]:
    """Return the uuids and names of jobs whose handlers hang, and since when."""
    found = []
    listed = entity.metadata.get("hanging")
    for each in listed if isinstance(listed, list) else ():
        match each:
            case {"uuid": str(uuid), "name": str(name), "since": int() | float() as since}:
                found.append((uuid, name, float(since)))
    return found


# Forms


@dataclass
class Selection:
    """The jobs of a form: chosen ones with the tokens that the page has shown, or all that a search finds."""

    chosen: list[tuple[str, int]]
    is_all: bool
    state: State
    filters: Filters

    @classmethod
    def of(cls, visit: Visit) -> Selection:
        """Return the selection of a form.

        :raises ValueError: the form was not made by the page.
        """
        chosen = []
        for each in visit.fields("job"):
            found = re.fullmatch(rf"({UUID}):(\d{{1,19}})", each, re.ASCII)
            if found is None:
                raise ValueError(f"{each[:80]!r} is no job of this page")
            chosen.append((found[1], int(found[2])))
        word = visit.field("state") or "trash"
        if word not in STATES:
            raise ValueError(f"{word!r} is no state")
        search = dict(parse_qsl(visit.field("search"), keep_blank_values=True))
        return cls(chosen, visit.field("all") == "1", STATES[word], Filters.of(search))

    def search(self) -> dict[str, Any]:
        """Return the arguments of the search."""
        return self.filters.arguments(self.state)

    def count(self, visit: Visit) -> int | None:
        """Return the number of jobs; None for many."""
        if not self.is_all:
            return len(self.chosen)
        stats, cap = visit.look.stats, visit.look.cap
        if not self.filters.given() and self.state != COMPLETE and stats is not None and cap is None:
            return _counts(stats)[WORDS[self.state]]
        page = visit.board.find_page(MATCHES, **self.search())
        return len(page.jobs) if page.after is None else None

    def samples(self, board: JobBoard) -> list[Job]:
        """Return some of the jobs."""
        if self.is_all:
            return list(board.find_page(5, **self.search()).jobs)
        return [job for job in jobs_of(board, [uuid for uuid, _ in self.chosen[:5]]) if job is not None]


def act(visit: Visit) -> Response:
    """Act on jobs, or ask for a confirmation first."""
    chosen = ACTS.get(visit.field("act"))
    if chosen is None:
        raise ValueError(f"{visit.field('act')!r} is no act")
    selection = Selection.of(visit)
    if not selection.chosen and not selection.is_all:
        return visit.back("Nothing was changed: no job was chosen.")
    is_asked = chosen.is_asked or selection.is_all or len(selection.chosen) > 1
    if is_asked and visit.field("sure") != "1":
        by = visit.board.engine.now() / 1e6
        count, samples = selection.count(visit), selection.samples(visit.board)
        return _confirmation(visit, chosen, selection, by, count=count, samples=samples)
    return _act(visit, chosen, selection)


def _confirmation(visit: Visit, act: JobAct, selection: Selection, by: float, **context: Any) -> Response:
    """Return the page that asks for a confirmation, or, with a tally, shows how far the act has come."""
    shown: dict[str, Any] = {"name": visit.field("act"), "words": WORDS, "reason": reason_line, "most": MATCHES}
    shown |= {"tally": None, "place": None, "samples": []}
    return visit.render("confirm.html", act=act, selection=selection, by=by, **(shown | context))


def _act(visit: Visit, act: JobAct, selection: Selection) -> Response:
    why = visit.field("why").strip()[:REASON]
    reason = f"{act.done} by {visit.who}" + (f": {why}" if why else "")
    tally = ActTally(_integer(visit, "done"), _integer(visit, "left"), visit.fields("reason")[:5])
    by, place, before = float(visit.field("by") or 0), visit.field("place") or None, tally.done
    try:
        if selection.is_all:
            place = act_on_found(visit.board, act, selection.search(), by, place, reason, tally)
        else:
            place = None
            act_on_chosen(visit.board, act, selection.chosen, reason, tally)
    except JobFailure as failure:
        tally.add(failure.acted)
        raise JobFailure(f"{failure}. {tally.sentence(act)}", failure) from failure
    finally:
        LOG.info("%d jobs on the board %r were %s", tally.done - before, visit.board.name, reason)
        visit.reader.expire()
    if place is None:
        return _back(visit, tally.sentence(act))
    return _confirmation(visit, act, selection, by, count=_integer(visit, "count") or None, tally=tally, place=place)


def _integer(visit: Visit, name: str) -> int:
    given = visit.field(name)
    return int(given) if given.isdecimal() and len(given) < 12 else 0


def _back(visit: Visit, said: str) -> Response:
    """Return to the page of a form, once the reader knows what has changed."""
    visit.reader.expire()
    try:
        visit.reader.read(("stats", "rules", "claims", "causes"), timeout=1.0)
    except (JobBoardError, TimeoutError) as error:
        LOG.debug("the board %r was not read after an act: %s", visit.reader.board.name, error)
    return visit.back(said)


def rule(visit: Visit) -> Response:
    """Pause or resume names, set or remove a limit."""
    board, name = visit.board, visit.field("name")
    if visit.field("act") in ("pause", "limit") and name not in (each.name for each in visit.look.names or ()):
        # A person has typed the name, and spaces around it may have come with a copied text.
        name = name.strip()
    per: Per = "group" if visit.field("per") == "group" else "name"
    names = [name] if name else None
    return _change(
        visit,
        {
            "pause": lambda: _done(f"{name or 'Everything'} is paused.", board.pause, names),
            "resume": lambda: _done(f"{name or 'Everything'} is resumed.", board.resume, names),
            "limit": lambda: _set_limit(visit, name, per),
            "unlimit": lambda: _done(f"The limit of {name} is removed.", board.remove_limit, name, per),
        },
    )


def _set_limit(visit: Visit, name: str, per: Per) -> str:
    concurrency, starts, seconds = visit.field("concurrency"), visit.field("starts"), visit.field("seconds")
    if bool(starts) != bool(seconds):
        raise ValueError("a rate needs a number of starts and their seconds")
    try:
        rate = (int(starts), float(seconds)) if starts else None
        at_once = int(concurrency) if concurrency else None
    except ValueError:
        raise ValueError("a limit is set in numbers") from None
    visit.board.set_limit(name, concurrency=at_once, per=per, rate=rate)
    return f"The limit of {name} is set."


def schedule(visit: Visit) -> Response:
    """Post a job of a schedule now; pause, resume or remove a schedule."""
    board, name = visit.board, visit.field("name")
    removed = f"The schedule {name} is removed. Its posted jobs stay."
    return _change(
        visit,
        {
            "now": lambda: _post_now(board, name),
            "pause": lambda: _done(f"The schedule {name} is paused.", board.pause_schedule, name),
            "resume": lambda: _done(f"The schedule {name} is resumed.", board.resume_schedule, name),
            "unschedule": lambda: _done(removed, board.unschedule, name),
        },
    )


def _post_now(board: JobBoard, name: str) -> str:
    job = board.post_now(name)
    return f"Posted {job}." if job.created else f"Nothing was posted: {job} has the key of the schedule {name}."


def _done(said: str, do: Callable[..., object], *args: object) -> str:
    do(*args)
    return said


def _change(visit: Visit, acts: Mapping[str, Callable[[], str]]) -> Response:
    """Do the act of a form, and return to its page."""
    word = visit.field("act")
    if word not in acts:
        raise ValueError(f"{word!r} is no act")
    try:
        said = acts[word]()
    except (NotFound, ValueError) as error:
        return visit.back(f"Nothing was changed: {error}.")
    LOG.info("%s by %s on the board %r: %s", word, visit.who, visit.board.name, said)
    return _back(visit, said)


PAGES = {
    "/": boards,
    "/{board}/": overview,
    "/{board}/state": state,
    "/{board}/jobs": jobs,
    "/{board}/jobs/{uuid}": job,
    "/{board}/jobs/{uuid}/{what}.json": value,
    "/{board}/trash": trash,
    "/{board}/done": done,
    "/{board}/schedules": schedules,
    "/{board}/limits": limits,
    "/{board}/conductors": conductors,
}

FORMS = {"/{board}/act": act, "/{board}/rule": rule, "/{board}/schedule": schedule}
