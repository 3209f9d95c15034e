"""Boards with a cipher: what is encrypted, who can read it, and how keys are rotated."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard import NoKey, Posting, codec
from jobboard.aio import AsyncJobBoard
from jobboard.conductor import Conductor
from jobboard.moving import Mover
from jobboard.outcomes import RetryPolicy
from jobboard.testing import eventually
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, Background
from tests.support import ciphers
from tests.support.ciphers import BOTH, OLD, Keys

MakeBoard = Callable[..., Any]

SECRET = "the-secret-of-mrs-robinson"
DETAILS = {"secret": SECRET, "deep": [{"secret": SECRET}], SECRET: 1}
ALL = ("memory", "sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd")


def denied(read: Callable[[], object]) -> str:
    with pytest.raises(NoKey) as error:
        read()
    return str(error.value)


class Book:
    name, uuid = SECRET, SECRET


# Stores


@pytest.mark.backends(*ALL[1:])
@pytest.mark.rule("A store holds no plain byte of encrypted details, books, notes and results.")
def test_no_plain_byte_is_stored(
    make_board: MakeBoard, backend: str, board_conf: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    board = make_board(keep_done=600, cipher=OLD)
    done, noted, failed = [board.post(name, Book(), DETAILS) for name in ("done", "noted", "failed")]
    board.post("waits", details=DETAILS, delay=600)
    board.post("replaced", details={"n": 1}, key="k")
    assert board.post("replaced", details=DETAILS, key="k", on_key="replace").replaced
    board.schedule("nightly", "@daily", "due", details=DETAILS)
    with board.working("anna", names=["done"]) as job:
        job.note(SECRET, checkpoint=DETAILS, flush=True)
        job.claim.consume(result=DETAILS, then=[Posting("then", details=DETAILS)])
    board.claim(noted, "anna")
    noted.claim.note(SECRET, checkpoint=DETAILS, flush=True)
    board.cancel(failed)
    board.post_again(failed)
    # The dump finds the same parts of a plain job.
    plain = make_board(keep_done=600)
    for name in ("details", "note", "result"):
        job = plain.post(name, details={"plain": "plain details"})
        plain.claim(job, "anna").note("plain note", flush=True)
        if name == "result":
            job.claim.consume(result="plain result")
    engine = request.getfixturevalue("engine") if backend in ("postgresql", "mariadb") else None
    stored = list(ciphers.DUMPS[backend](board_conf, engine))
    for word in (b"replaced", b"plain details", b"plain note", b"plain result"):
        assert any(word in value for value in stored), word
    for form in ciphers.forms(SECRET.encode()):
        assert not any(form in value for value in stored)
    # All of it is there.
    assert board.get(done.uuid).result(0) == board.get(done.uuid).details == DETAILS
    assert (done.book_name, board.get(failed.uuid).book_uuid) == (SECRET, SECRET)
    seen = board.get(noted.uuid)
    assert (seen.checkpoint, seen.progress.text, seen.details) == (DETAILS, SECRET, DETAILS)
    assert [job.details for job in board.iterjobs() if job.is_encrypted] == [DETAILS] * 5
    assert [each.details for each in board.schedules()] == [DETAILS]


@pytest.mark.backends(*ALL)
@pytest.mark.rule("A board passes over jobs that are encrypted with a newer key, and claims plain ones and its own.")
def test_a_newer_key_is_passed_over_without_a_claim(make_board: MakeBoard) -> None:
    plain, old, new = make_board(), make_board(cipher=OLD), make_board(cipher=BOTH)
    jobs = [board.post("mail", details={"n": n}, key=f"{n}") for n, board in enumerate((new, old, plain))]
    replaced = plain.post("mail", key="r")
    assert new.post("mail", details={"n": 3}, key="r", on_key="replace").replaced
    assert [job.details for job in plain.iterjobs(only_unclaimed=True)] == [{"n": 2}]
    assert plain.claim_many("anna", 9) == [jobs[2]]
    assert old.claim_many("bert", 9, names=["mail"]) == [jobs[1]]
    assert plain.claim_next("anna") is plain.claim_next("anna", names=["mail"]) is old.claim_next("bert") is None
    with pytest.raises(jobboard.NotFound):
        old.wait(0)
    # Nobody has tried: no attempt, no claim, no delay.
    for job in (plain.get(jobs[0].uuid), plain.get(replaced.uuid)):
        assert (job.attempts, job.token, job.seen_state, job.who) == (0, job.token, "UNCLAIMED", None)
    assert plain.get(jobs[0].uuid).token == jobs[0].token
    found = new.claim_many("carl", 9)
    assert [job.details for job in found] == [{"n": 0}, {"n": 3}]


@pytest.mark.backends("memory", "redis")
@pytest.mark.rule("A waiter is woken by a job that it can decrypt, also behind one that it can't.")
def test_waiters_wait_for_jobs_that_they_can_read(make_board: MakeBoard) -> None:
    plain, new = make_board(), make_board(cipher=BOTH)
    new.post("mail")

    async def wait() -> Any:
        task = asyncio.create_task(AsyncJobBoard(plain).claim_next("anna", timeout=30))
        await asyncio.sleep(0)
        job = await asyncio.to_thread(plain.post, "mail")
        return job, await task

    job, claimed = asyncio.run(wait())
    assert job == claimed


# Without the key

memory = pytest.mark.backends("memory")
any_two = pytest.mark.backends("memory", "sqlite")


@any_two
@pytest.mark.rule("Every listing shows encrypted jobs without the key, and only their content raises NoKey.")
def test_reads_without_the_key(make_board: MakeBoard) -> None:
    board, plain = make_board(keep_done=600, cipher=BOTH), make_board(keep_done=600)
    kept, trashed, consumed = [board.post(name, Book(), DETAILS) for name in ("kept", "trashed", "consumed")]
    board.cancel(trashed)
    with board.working("anna", names=["consumed"]) as job:
        job.claim.consume(result=DETAILS)
    board.schedule("nightly", "@daily", "due", details=DETAILS)
    board.claim(kept, "anna").note(SECRET, percent=3, checkpoint=DETAILS, flush=True)
    for job in (plain.get(kept.uuid), *plain.iterjobs(), *plain.find(names=["kept"]), *plain.find_page().jobs):
        assert (job.name, job.is_encrypted, job.context) == ("kept", True, {})
        for read in ("details", "book", "book_name", "checkpoint"):
            text = denied(lambda: getattr(job, read))  # noqa: B023
            assert text == f"{job} is encrypted with key 2, and the board was fetched without cipher="
        assert job.progress.text == "encrypted"
        assert job.progress.percent is None
    for job in (*plain.trashed(), *plain.find(states=["TRASHED"])):
        assert job == trashed
        denied(lambda: job.details)  # noqa: B023
    for outcome in (*plain.outcomes(), plain.outcome(consumed)):
        assert (outcome.job, outcome.refused, outcome.who) == (consumed, None, "anna")
        assert "result" in denied(lambda: outcome.result)  # noqa: B023
        denied(lambda: outcome.details)  # noqa: B023
    denied(lambda: plain.get(consumed.uuid).result(0))
    [schedule] = plain.schedules()
    assert (schedule.name, "secret" in repr(schedule)) == ("due", False)
    denied(lambda: schedule.details)
    assert not [odd for odd in plain.examine() if odd.place.startswith(("job", "outcome"))]
    # Operators need no key.
    [again] = [plain.get(job.uuid) for job in (plain.post_again(trashed),)]
    assert board.get(again.uuid).details == DETAILS
    assert board.get(again.uuid).book_name == SECRET
    assert plain.act("post_again", plain.trashed()).done == 1
    plain.restore(plain.get(trashed.uuid))
    plain.cancel(plain.get(trashed.uuid))
    plain.purge(plain.get(trashed.uuid))
    plain.purge(plain.get(consumed.uuid))


@memory
@pytest.mark.rule("A claimed job that can't be decrypted is given back for a minute, and counts no attempt.")
@pytest.mark.parametrize("cipher", [Keys(3), Keys(1, 3)])
def test_missing_keys_put_jobs_off(make_board: MakeBoard, cipher: Keys, caplog: pytest.LogCaptureFixture) -> None:
    writer, reader = make_board(cipher=BOTH), make_board(cipher=cipher)
    jobs = [writer.post("mail", details=DETAILS, max_attempts=1) for _ in range(3)]
    good = reader.post("mail", details={"n": 1}, priority="LOW")
    with caplog.at_level(logging.WARNING, "jobboard"):
        assert reader.claim_many("anna", 9) == [good]
    [line] = [record for record in caplog.records if "key 2" in record.getMessage()]
    assert SECRET not in line.getMessage()
    for job in jobs:
        seen = reader.get(job.uuid)
        assert (seen.seen_state, seen.attempts, seen.errors) == ("SCHEDULED", 0, ())
        assert 50 < (seen.due - seen.last_modified).total_seconds() <= 60
    # A handle is refused before anything happens.
    job = reader.get(writer.post("mail").uuid)
    denied(lambda: reader.claim(job, "anna"))
    assert writer.get(job.uuid).seen_state == "UNCLAIMED"


@memory
@pytest.mark.rule("Any exception of a cipher's decrypt, and any nonsense that it returns, counts as NoKey.")
def test_every_failure_of_decrypt_counts_as_a_missing_key(make_board: MakeBoard) -> None:
    def fail(number: int, data: bytes) -> Any:
        raise ZeroDivisionError(SECRET)

    writer = make_board(cipher=BOTH)
    job = writer.post("mail", details=DETAILS)
    for decrypt in (fail, lambda *_: b"\xc1", lambda *_: b"\x90", lambda *_: None, lambda *_: b"\x92\x01\x02"):
        broken = Keys(2)
        broken.decrypt = decrypt  # type: ignore[method-assign]
        reader = make_board(cipher=broken)
        text = denied(lambda: reader.get(job.uuid).details)  # noqa: B023
        assert SECRET not in text
        assert reader.claim_next("anna") is None
        assert reader.get(job.uuid).seen_state == "SCHEDULED"
        writer.cancel(job)
        writer.restore(job)


@memory
@pytest.mark.rule("A posting of a newer version of the library is given back by a board with a cipher, never trashed.")
def test_a_newer_version_below_the_key_is_put_off(make_board: MakeBoard) -> None:
    board = make_board(cipher=OLD)
    [newer] = Harness(board).plant(version=codec.VERSION + 1)
    [sealed] = Harness(board).plant(version=2 * codec.KEYS + codec.VERSION + 1)
    assert board.claim_many("anna", 5) == []
    assert (board.stats().scheduled, board.stats().unclaimed, board.stats().trashed) == (1, 1, 0)
    for uuid in (newer, sealed):
        with pytest.raises(jobboard.JobFailure, match="newer"):
            board.get(uuid)


@memory
@pytest.mark.rule("A job whose note can't be decrypted is put off as one whose details can't be.")
def test_a_note_without_its_key_puts_the_job_off(make_board: MakeBoard) -> None:
    plain, board = make_board(), make_board(cipher=OLD)
    job = board.get(plain.post("mail", details={"n": 1}).uuid)
    board.claim(job, "anna").note("half", checkpoint=7, flush=True)
    job.claim.abandon()
    assert plain.claim_next("bert") is None
    assert plain.get(job.uuid).seen_state == "SCHEDULED"
    assert (board.get(job.uuid).checkpoint, plain.get(job.uuid).details) == (7, {"n": 1})


@memory
@pytest.mark.rule("A damaged encrypted part is damage, and goes to the trash.")
def test_damage_goes_to_the_trash(make_board: MakeBoard) -> None:
    board = make_board(cipher=OLD)
    form = codec.Content({}, sealed="1:no base64!")
    [broken] = Harness(board).plant(codec.encode(form, board.engine.wire), codec.version_of("1:"))
    assert board.claim_next("anna") is None
    assert [job.uuid for job in board.trashed()] == [broken]


# Keys


@any_two
@pytest.mark.rule("The newest key encrypts, and older keys decrypt.")
def test_rotation(make_board: MakeBoard) -> None:
    plain, old, new = make_board(), make_board(keep_done=60, cipher=OLD), make_board(keep_done=60, cipher=BOTH)
    plain.post("mail", details={"n": 0})
    first = old.post("mail", details={"n": 1})
    job = old.claim_next("anna", names=["mail"])
    assert job.details == {"n": 0}
    job.claim.abandon()
    old.claim(first, "anna").note("half", percent=50, checkpoint=1, flush=True)
    first.claim.abandon()
    found = new.claim_many("bert", 5)
    assert [job.details for job in found] == [{"n": 0}, {"n": 1}]
    found[1].note("more", flush=True)
    assert (found[1].checkpoint, found[1].progress.percent) == (1, 50)
    new.finish_many([jobboard.Act(job, "consume", result={"n": 2}) for job in found], "bert")
    # The posting has the older key, and its result the newer one.
    assert new.get(first.uuid).result(0) == {"n": 2}
    assert old.get(first.uuid).details == {"n": 1}
    denied(lambda: old.get(first.uuid).result(0))


@memory
@pytest.mark.rule("An equal setting of an encrypted schedule changes nothing. A newer key sets the schedule again.")
def test_schedules(make_board: MakeBoard) -> None:
    old, new = make_board(cipher=OLD), make_board(cipher=BOTH)
    first = old.schedule("nightly", every=3600, name="due", details=DETAILS)
    assert old.schedule("nightly", every=3600, name="due", details=DETAILS) == first
    again = new.schedule("nightly", every=3600, name="due", details=DETAILS)
    assert again.next_due > first.next_due
    assert again.details == DETAILS
    denied(lambda: old.schedules()[0].details)


@memory
@pytest.mark.rule("A poster of schedules needs no key.")
def test_schedules_are_posted_without_the_key(make_board: MakeBoard) -> None:
    board, plain = make_board(cipher=OLD), make_board()
    board.schedule("often", every=0.1, name="due", details=DETAILS)
    jobboard.testing.eventually(lambda: plain.post_due() is not None and plain.job_count > 0)
    job = board.claim_next("anna")
    assert (job.details, job.schedule[0]) == (DETAILS, "often")


@pytest.mark.backends("memory", "sqlite")
@pytest.mark.rule("A move carries encrypted content unread, and needs no key.")
@pytest.mark.parametrize("there", ["memory", "sqlite"])
def test_moving(make_board: MakeBoard, backend: str, conf_of: Callable[[str], Any], there: str) -> None:
    board, plain = make_board(keep_done=600, cipher=BOTH), make_board()
    job, done = board.post("mail", Book(), DETAILS), board.post("done", details=DETAILS)
    with board.working("anna", names=["done"]) as consumed:
        consumed.claim.consume(result=DETAILS)
    board.claim(job, "anna").note(SECRET, checkpoint=DETAILS, flush=True)
    job.claim.abandon()
    board.schedule("nightly", "@daily", "due", details=DETAILS)
    name, conf = f"target-{backend}", conf_of(there)
    with jobboard.backend(name, conf) as target:
        moved = Mover(plain, target).run()
        assert moved.left == []
        assert (moved.moved, moved.outcomes, moved.schedules) == (1, 1, 1)
        assert target.claim_next("anna") is None
        with jobboard.backend(name, conf, cipher=BOTH) as reader:
            seen = reader.get(job.uuid)
            assert (seen.details, seen.book_name, seen.checkpoint) == (DETAILS, SECRET, DETAILS)
            assert reader.get(done.uuid).result(0) == DETAILS
            assert reader.schedules()[0].details == DETAILS
            assert reader.claim_next("anna") == job


# Workers


@any_two
@pytest.mark.rule("Handlers in processes get decrypted jobs, and their notes, results and follow-ups are encrypted.")
def test_worker_processes(make_board: MakeBoard) -> None:
    board, plain = make_board(keep_done=600, cipher=BOTH), make_board()
    job = board.post("mail", details=DETAILS)
    board.claim(job, "anna").note("before", checkpoint=[SECRET], flush=True)
    job.claim.abandon()
    Conductor("one", board, {"mail": ciphers.report}, workers="processes", max_simultaneous_jobs=1).run(1)
    assert board.get(job.uuid).result(0) == {"details": DETAILS, "checkpoint": [SECRET], "progress": "before"}
    denied(lambda: plain.get(job.uuid).result(0))
    [follow_up] = board.iterjobs()
    assert (follow_up.name, follow_up.details) == ("next", DETAILS)
    denied(lambda: plain.get(follow_up.uuid).details)
    board.act("cancel", board.find())
    job = board.post("mail", details=DETAILS)
    Conductor("one", board, {"mail": ciphers.note_and_retry}, workers="processes", max_simultaneous_jobs=1).run(1)
    assert (board.get(job.uuid).checkpoint, plain.get(job.uuid).progress.text) == ([SECRET], "encrypted")


@any_two
@pytest.mark.rule("A claim of a job whose content can't be decrypted any more raises NoKey and is given back at once.")
def test_a_job_is_encrypted_before_its_claim(make_board: MakeBoard, backend: str) -> None:
    board, plain = make_board(cipher=BOTH), make_board()
    job = plain.post("mail", key="k")
    assert board.post("mail", key="k", on_key="replace").replaced
    text = denied(lambda: plain.claim(job, "anna"))
    assert text == f"{job} is encrypted with key 2, and the board was fetched without cipher="
    seen = plain.get(job.uuid)
    assert (seen.seen_state, seen.attempts, job.claim, Harness(plain).held()) == ("UNCLAIMED", 0, None, [])
    noted = board.get(plain.post("noted").uuid)
    board.claim(noted, "anna").note("text", flush=True)
    noted.claim.abandon()
    seen = plain.get(noted.uuid)
    denied(lambda: plain.claim(seen, "anna"))
    assert plain.get(noted.uuid).token == seen.token


class Encrypted:
    """A job that was encrypted after a board with this cipher has read it, so that its claim decrypts it."""

    def __init__(self, make_board: MakeBoard, decrypt: Callable[[], object], **conf: Any) -> None:
        class Late(Keys):
            def decrypt(self, number: int, data: bytes) -> bytes:
                decrypt()
                return super().decrypt(number, data)

        self.writer = make_board(cipher=OLD)
        self.board = make_board(cipher=Late(1), **conf)
        self.job = self.board.get(make_board().post("mail", key="k").uuid)
        assert self.writer.post("mail", details={"n": 1}, key="k", on_key="replace").replaced


@pytest.mark.backends(*ALL)
@pytest.mark.rule("An interrupt within a cipher gives the claim back.")
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_within_a_cipher_leaves_no_claim(make_board: MakeBoard, interrupt: type[BaseException]) -> None:
    def decrypt() -> None:
        raise interrupt

    late = Encrypted(make_board, decrypt)
    for claim in (lambda: late.board.claim(late.job, "anna"), lambda: late.board.claim_next("anna")):
        with pytest.raises(interrupt):
            claim()
        seen = late.writer.get(late.job.uuid)
        assert (seen.seen_state, seen.attempts, Harness(late.board).held()) == ("UNCLAIMED", 0, [])
    assert late.writer.claim_next("bert") == late.job


@pytest.mark.backends(*ALL)
@pytest.mark.rule("The claim of one job is renewed while a cipher takes its time over it.")
def test_a_cipher_that_is_slower_than_a_lease(make_board: MakeBoard) -> None:
    def decrypt() -> None:
        held.extend(Harness(late.board).held())
        first = late.writer.get(late.job.uuid).record.lock_until
        if first is not None:
            # Without a renewal it would have lapsed by then.
            eventually(lambda: (late.writer.get(late.job.uuid).record.lock_until or 0) > first + 1_000_000, LIMIT)

    held: list[Any] = []
    late = Encrypted(make_board, decrypt, claim_ttl=1)
    claim = late.board.claim(late.job, "anna")
    assert (held, late.job.details, claim.lost) == ([claim], {"n": 1}, False)
    seen = late.writer.get(late.job.uuid)
    assert (seen.owner, seen.attempts) == ("anna", 1)


@memory
@pytest.mark.rule("No error of a cipher is stored with a job.")
@pytest.mark.parametrize("workers", ["threads", "processes"])
def test_errors_of_the_cipher_are_not_stored(make_board: MakeBoard, workers: Any) -> None:
    class Broken(Keys):
        encrypts = decrypts = True

        def encrypt(self, data: bytes) -> bytes:
            if not self.encrypts:
                raise ValueError(f"no place for {data!r}")
            return super().encrypt(data)

        def decrypt(self, number: int, data: bytes) -> bytes:
            found = super().decrypt(number, data)
            if not self.decrypts:
                raise ValueError(f"nobody may read {found!r}")
            return found

    cipher = Broken(1)
    board = make_board(cipher=cipher)
    other = board.post("other", details=DETAILS)

    def read_another(job: jobboard.Job) -> Any:
        cipher.decrypts = False
        return board.get(other.uuid).details

    for handler, text in ((ciphers.follow_up, "could not encrypt"), (read_another, "could not decrypt")):
        if workers == "threads" or handler is ciphers.follow_up:
            job = board.post("mail", details=DETAILS)
            cipher.encrypts = False
            Conductor("one", board, {"mail": handler}, workers=workers, max_simultaneous_jobs=1).run(1)
            cipher.encrypts = True
            [failure] = board.get(job.uuid).errors
            assert text in failure.text
            assert SECRET not in failure.text


@memory
@pytest.mark.rule("A note that does not fit once encrypted is refused in the call of the handler, also in a process.")
@pytest.mark.parametrize("flush", [False, True])
def test_large_notes_of_processes_are_refused(make_board: MakeBoard, flush: bool) -> None:
    board = make_board(cipher=OLD, keep_done=60)
    job = board.post("mail", details={"size": 15_000, "flush": flush})
    Conductor("one", board, {"mail": ciphers.large_note}, workers="processes", max_simultaneous_jobs=1).run(1)
    refused, checkpoint = board.get(job.uuid).result(0)
    assert (refused.partition(":")[0], checkpoint) == ("note", "small")


@memory
@pytest.mark.rule("A cipher that takes its time over a note holds up no other claim.")
def test_a_slow_cipher_holds_up_no_other_claim(make_board: MakeBoard) -> None:
    class Slow(Keys):
        begun, goes_on = threading.Semaphore(0), threading.Event()

        def encrypt(self, data: bytes) -> bytes:
            if b"slow" in data:
                self.begun.release()
                assert self.goes_on.wait(LIMIT)
            return super().encrypt(data)

    cipher = Slow(1)
    board = make_board(cipher=cipher)
    board.post_many([{"name": "mail"}] * 2)
    claim = board.claim_next("anna").claim
    noting = Background(lambda: claim.note("slow"))
    assert cipher.begun.acquire(timeout=LIMIT)
    other = Background(lambda: board.claim_next("bert"))
    try:
        assert other.wait()
        claim.note(percent=3)
    finally:
        cipher.goes_on.set()
    noting.wait()
    assert (claim.job.progress.text, claim.job.progress.percent) == ("slow", 3)


@pytest.mark.backends("sqlite")
@pytest.mark.rule("Claims are renewed while a cipher takes its time over their jobs.")
def test_a_slow_cipher_loses_no_claim(make_board: MakeBoard) -> None:
    class Slow(Keys):
        def decrypt(self, number: int, data: bytes) -> bytes:
            held.append(Harness(board).held())
            return super().decrypt(number, data)

    held: list[Any] = []
    board = make_board(cipher=Slow(1))
    board.post_many([{"name": "mail"}] * 2)
    assert [job.claim for job in board.claim_many("anna", 2)] == held[0] == held[1]


@memory
@pytest.mark.rule("Limits of size count encrypted bytes.")
def test_limits_count_encrypted_bytes(make_board: MakeBoard) -> None:
    board, plain = make_board(cipher=OLD, max_details=1_000, keep_done=60), make_board(max_details=1_000)
    large = {"fill": "x" * 900}
    plain.cancel(plain.post("mail", details=large))
    with pytest.raises(ValueError, match=r"details: \d+ bytes encrypted, and max_details is 1000"):
        board.post("mail", details=large)
    job = board.post("mail", details={"fill": "x" * 100})
    claim = board.claim(job, "anna")
    with pytest.raises(ValueError, match=r"result: \d+ bytes encrypted"):
        claim.consume(result="x" * 900)
    with pytest.raises(ValueError, match="note: "):
        claim.note(checkpoint="x" * 15_000)
    plain_claim = plain.claim(plain.post("plain"), "anna")
    plain_claim.note(checkpoint="x" * 15_000)
    claim.consume(result="x")


@memory
@pytest.mark.rule("Follow-ups of a worker process that do not fit once encrypted are a failure of its handler.")
@pytest.mark.parametrize(
    ("size", "number", "text"), [(60_000, 1, "bytes encrypted"), (40_000, 10, "one commit stores")]
)
def test_large_follow_ups_of_processes_fail(make_board: MakeBoard, size: int, number: int, text: str) -> None:
    board = make_board(cipher=OLD, max_details=80_000)
    job = board.post("mail", details={"size": size, "number": number})
    late = RetryPolicy(base=1000, cap=3600)
    Conductor("one", board, {"mail": ciphers.large}, workers="processes", max_simultaneous_jobs=1, retry=late).run(1)
    assert text in board.get(job.uuid).error


@memory
def test_threads_and_coroutines(make_board: MakeBoard) -> None:
    board = make_board(keep_done=60, cipher=OLD)
    job = board.post("mail", details=DETAILS)

    async def work() -> None:
        async with AsyncJobBoard(board) as wrapped, wrapped.working("anna") as claimed:
            assert claimed.details == DETAILS
            await wrapped.consume(claimed, "anna", result=DETAILS)

    asyncio.run(work())
    board.connect()
    assert board.get(job.uuid).result(0) == DETAILS
    board.post("mail", details=DETAILS)
    Conductor("one", board, lambda job: job.details).run(1)
    assert next(board.outcomes()).result == DETAILS


# Checks


class NotQuite:
    number = 1

    def encrypt(self, data: bytes) -> str:
        return data.hex()

    def decrypt(self, number: int, data: bytes) -> bytes:
        return data


@memory
@pytest.mark.rule("A cipher that is none is refused at fetch, and no text shows a cipher.")
def test_checks() -> None:
    class Shown(NotQuite):
        def __repr__(self) -> str:
            return SECRET

    for bad, text in (
        (object(), "must be an object with number, encrypt() and decrypt(), not a object"),
        (NotQuite, "must be an object with number, encrypt() and decrypt(), not the class itself"),
        (SECRET, "not a str"),
    ):
        for given in ({"cipher": bad}, {}):
            conf: Any = "memory" if given else {"board": "memory", "cipher": bad}
            with pytest.raises(TypeError) as error:
                jobboard.fetch("x", conf, **given)
            assert text in str(error.value)
            assert SECRET not in str(error.value)
    for number, kind in (
        (0, ValueError),
        (1_000_001, ValueError),
        (True, TypeError),
        ("1", TypeError),
        (None, TypeError),
    ):
        cipher = Shown()
        cipher.number = number  # type: ignore[assignment]
        with pytest.raises(kind, match="its number"):
            jobboard.fetch("x", "memory", cipher=cipher)
    board = jobboard.fetch("x", "memory", cipher=Shown())  # type: ignore[arg-type]
    assert "cipher" not in board.options
    assert SECRET not in f"{board} {board!r} {board._conf!r}"
    with board:
        with pytest.raises(TypeError, match="must return bytes, not str"):
            board.post("mail", details=DETAILS)

        def fail(data: bytes) -> bytes:
            raise OSError(SECRET)

        board._seal._cipher.encrypt = fail  # type: ignore[union-attr]
        with pytest.raises(jobboard.JobFailure, match="could not encrypt: OSError") as failure:
            board.post("mail", details=DETAILS)
        assert SECRET not in str(failure.value)
        assert board.job_count == 0


@memory
def test_results_of_every_shape(make_board: MakeBoard) -> None:
    board, plain = make_board(keep_done=60, cipher=OLD), make_board(keep_done=60)
    for result in (126, "~", "~1:QUJD", 0, False, "", [], {}, {"sealed": "1:QUJD"}):
        for each in (board, plain):
            job = each.post("mail")
            each.claim(job, "anna").consume(result=result)
            assert each.get(job.uuid).result(0) == result
