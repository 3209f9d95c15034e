"""Claims that a board keeps: their heartbeat, and the order between a beat and the acts of their holders."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from jobboard import logs, runtime
from jobboard.codec import Note, decode_note
from jobboard.engine import RetryingEngine
from jobboard.exceptions import JobBoardError
from jobboard.heartbeat import Heartbeat
from jobboard.job import Claim
from jobboard.primitives import BATCH, POST_BYTES, Renewed, batches
from jobboard.states import OK, Status

LOG = logs.Log(__name__)

RENEW_BATCH = 1000
"""The number of claims that one request renews at most."""

END_OF_BEAT = 3.5
"""The seconds for which :meth:`Claims.end` waits for a renewal under way."""


class Claims:
    """The claims that a board renews, until they end or are lost.

    A claim is *held* while the heartbeat renews it. It leaves the heartbeat before its end is sent, so that no beat
    takes the end for a loss. If the end fails, the claim is held again.

    :param ttl: the lease of a kept claim, in µs.
    :param lost: called once with each claim that is lost.
    :param chores: called with each beat, after the renewals.
    """

    def __init__(
        self,
        name: str,
        engine: RetryingEngine,
        ttl: int,
        lost: Callable[[Claim], None],
        chores: Callable[[], None] = lambda: None,
    ) -> None:
        self._name = name
        self._engine = engine
        self._ttl = ttl
        self._tell_lost = lost
        self._chores = chores
        self._clear()
        self._is_open = False

    def _clear(self) -> None:
        # Reentrant, as methods that take it call each other.
        self._lock = runtime.RLock()
        # Taken while a claim is dropped as lost and reported: no extension of the claim begins in between.
        self._losing = runtime.Lock()
        # In the order of their coming, with the time since when each is held.
        self._held: dict[Claim, float] = {}
        # Claims whose ends are under way, and whether each is held again if its end fails.
        self._ending: dict[Claim, bool] = {}
        self._extending: list[Claim] = []
        self.unsent: dict[Claim, bytes | str] = {}
        """The notes of claims that the store does not have yet."""
        # Claims on their way to a holder, and what returns True once the holder is gone.
        self._undelivered: dict[Claim, Callable[[], bool]] = {}

    # Life and heartbeat

    def begin(self, interval: float) -> None:
        """Keep claims, with a beat every ``interval`` seconds. In a forked child, too: no lock is taken here."""
        self._clear()
        self._heartbeat = Heartbeat(self._name, self.beat, interval)
        self._is_open = True

    def end(self) -> list[Claim]:
        """Stop the heartbeat. Return the claims that were held."""
        if not self._is_open:
            return []
        self._is_open = False
        self._heartbeat.stop(END_OF_BEAT)
        with self._lock:
            held = list(self._held)
            self._held.clear()
        return held

    def beat(self) -> None:
        """Renew the held claims, do the chores, and report lost claims."""
        try:
            self._renew()
            self.send_notes()
            self._chores()
        finally:
            # A holder that hears of a loss may drop the job. If the claim were renewed, the job would never come back.
            with self._losing:
                with self._lock:
                    asked = [
                        claim for claim in self._held if claim.is_marked_or_lapsed() and claim not in self._extending
                    ]
                    lost = self.let_go(*asked)
                    for claim in lost:
                        claim.kept = False
                for claim in lost:
                    self._tell_lost(claim)

    def start_beating(self) -> None:
        """Start the heartbeat, unless it runs. Raise RuntimeError if the system starts no more threads."""
        with self._lock:
            if self._is_open:
                self._heartbeat.start()

    def beat_soon(self, start: bool = False) -> None:
        """Renew now: a connection has come back.

        :param start: start the heartbeat even if no claim is held, as something is to be given back.
        """
        if not self._is_open:
            return
        if start:
            try:
                self.start_beating()
            except RuntimeError as error:
                LOG.warning("claims that nobody holds have to wait: %s", error)
        self._heartbeat.hasten()

    def _renew(self) -> None:
        asked = self.held()
        for first in range(0, len(asked), RENEW_BATCH):
            with self._lock:
                # Its holder may have dropped the job of a claim that was read as lost. A renewed claim would keep it.
                asking = asked[first : first + RENEW_BATCH]
                chunk = [claim for claim in asking if claim in self._held and not claim.is_marked_lost()]
            if chunk:
                sent = runtime.boottime()
                self.confirm(chunk, sent, self._engine.renew([(each.uuid, each.token) for each in chunk], self._ttl))

    def confirm(self, asked: Sequence[Claim], sent: float, answer: Renewed) -> None:
        """Apply the answer to a renewal of ``asked``, sent at ``sent`` on :func:`~jobboard.runtime.boottime`. Skip
        claims that were let go of or extended meanwhile."""

        def until(margin: int | None) -> float | None:
            return None if margin is None else sent + margin / 1e6

        refused, missed = set(answer.lost), set(answer.missed)
        unkept = {(uuid, token): left for uuid, token, left in answer.unkept}
        lost = []
        with self._lock:
            for claim in asked:
                name = (claim.uuid, claim.token)
                if name in missed or self._held.get(claim, math.inf) >= sent:
                    continue
                if name not in refused and name not in unkept:
                    claim.confirm(until(answer.margin), kept=True)
                    continue
                del self._held[claim]
                if name in refused:
                    claim.kept = False
                    claim.refuse()
                    lost.append(claim)
                elif (left := unkept[name]) is not None:
                    claim.confirm(until(left), kept=False)
                    if claim.is_marked_or_lapsed():
                        lost.append(claim)
        for claim in lost:
            self._tell_lost(claim)

    # Notes

    def note(self, claim: Claim, make: Callable[[Note], bytes | str]) -> bool:
        """Keep a note for the next beat, or the end of the claim. Return false for an ended claim.

        :param make: returns the note, from the one before. Called again if another thread was quicker.
        """
        made: tuple[bytes | str | None, bytes | str] | None = None
        while True:
            with self._lock:
                if claim.ended:
                    return False
                # A read of the job may have brought an earlier note than the last one of its holder.
                last = claim.noted if claim.noted is not None else claim.job.record.note
                if made is not None and made[0] == last:
                    note = claim.noted = made[1]
                    claim.job.record = claim.job.record._replace(note=note)
                    if not claim.is_marked_lost():
                        self.start_beating()
                        self.unsent[claim] = note
                    return True
            # A cipher may take its time, and the heartbeat needs the lock.
            made = last, make(decode_note(last))

    def send_notes(self) -> None:
        """Send all notes that were not sent yet, in one try: the heartbeat repeats it."""
        if not self.unsent:
            return
        with self._lock:
            notes = list(self.unsent.items())
        for some in batches(notes, lambda each: len(each[0].job.record.posting) + len(each[1]), BATCH, POST_BYTES):
            self._send_notes(self._engine.raw.note, some)

    def send_note(self, claim: Claim) -> Status | None:
        """Send the note of a claim now, with repetitions. Return OK, LOST, or None if it has to wait."""
        with self._lock:
            note = claim.noted
            if note is None or claim in self._ending:
                return None
        [status] = self._send_notes(self._engine.note, [(claim, note)])
        return status

    def _send_notes(
        self, send: Callable[..., list[Status | None]], notes: Sequence[tuple[Claim, bytes | str]]
    ) -> list[Status | None]:
        asked = [(claim.uuid, claim.token, note) for claim, note in notes]
        statuses = send(self._engine.handle, asked, self._ttl)
        with self._lock:
            for (claim, note), status in zip(notes, statuses, strict=True):
                if status == Status.LOST or (status == OK and self.unsent.get(claim) is note):
                    self.unsent.pop(claim, None)
        return statuses

    # Holding

    def held(self) -> list[Claim]:
        """Return the held claims."""
        with self._lock:
            return list(self._held)

    def held_by(self, uuid: str, who: str) -> list[Claim]:
        """Return the held claims of a job by this owner."""
        return [claim for claim in self.held() if (claim.uuid, claim.who) == (uuid, who)]

    def hold(self, *claims: Claim) -> None:
        """Hold claims, but no ended claim, and an ending claim only if its end fails."""
        with self._lock:
            for claim in claims:
                if claim in self._ending:
                    self._ending[claim] = True
            standing = [claim for claim in claims if claim not in self._ending and not claim.ended]
            # Start the heartbeat first. If the heartbeat cannot start, these claims must not be held, now or later.
            if standing:
                self.start_beating()
            self._held.update(dict.fromkeys(standing, runtime.boottime()))

    def let_go(self, *claims: Claim) -> set[Claim]:
        """Stop holding claims. Return those that were held."""
        with self._lock:
            self.deliver(claims)
            kept = self._held.keys() & claims
            for claim in kept:
                del self._held[claim]
            for claim in self._ending.keys() & claims:
                self._ending[claim] = False
            return kept

    def let_lapse(self, claim: Claim) -> None:
        """Stop holding a claim under which nobody works, and have its job freed."""
        if not claim.ended and self.let_go(claim):
            self._engine.raw.forsake(claim.uuid, claim.token)

    def entrust(self, claims: Iterable[Claim], is_gone: Callable[[], bool]) -> None:
        """Note that a thread has claimed these for a holder that has not got them yet, and may be gone by now."""
        with self._lock:
            self._undelivered.update(dict.fromkeys(claims, is_gone))

    def deliver(self, claims: Iterable[Claim]) -> None:
        """Note that the holder has got these claims."""
        with self._lock:
            for claim in claims:
                self._undelivered.pop(claim, None)

    def undeliverable(self) -> list[Claim]:
        """Return, once, the claims whose holder was gone before it got them."""
        with self._lock:
            gone = [claim for claim, is_gone in self._undelivered.items() if is_gone()]
            self.deliver(gone)
            return gone

    def refuse(self, claims: Iterable[Claim]) -> None:
        """Mark held claims lost, as an operator has taken their job away here. The heartbeat reports the loss."""
        with self._lock:
            for claim in claims:
                if claim in self._held:
                    claim.refuse()

    # Extensions

    @contextlib.contextmanager
    def extending(self, claim: Claim) -> Iterator[None]:
        """Keep the heartbeat from letting go of a claim as lost, while its holder asks for an extension. If the
        extension fails, the next beat lets go of the claim.

        An extension of unknown outcome may have the board keep a claim that its holder counts as fixed. The job is
        freed once that lease has ended."""
        extending = self._extending
        with self._losing:
            extending.append(claim)
        try:
            yield
        except BaseException as error:
            is_refused = isinstance(error, JobBoardError) and getattr(error, "outcome", "none") == "none"
            with self._lock:
                if claim not in self._held and claim.deadline is not None and not is_refused:
                    self._engine.raw.forsake(claim.uuid, claim.token, claim.deadline)
            raise
        finally:
            extending.remove(claim)

    def end_extension(self, claim: Claim, deadline: float | None, kept: bool) -> None:
        """Hold an extended claim from now on, or stop holding it. A renewal under way changes nothing about that."""
        with self._lock:
            claim.confirm(deadline, kept=kept, extended=True)
            if kept:
                self.hold(claim)
            else:
                self.let_go(claim)

    # Ends

    def begin_ends(self, claims: Iterable[Claim]) -> list[Claim]:
        """Take claims out of the heartbeat, as their ends are about to be sent. Return those that were not ending
        before: the caller passes them to :meth:`complete_ends`."""
        with self._lock:
            begun = [claim for claim in claims if claim not in self._ending]
            for claim in begun:
                self._ending[claim] = claim in self._held
                self._held.pop(claim, None)
        return begun

    def complete_ends(self, begun: Iterable[Claim], ended: Iterable[Claim] = ()) -> None:
        """Finish what :meth:`begin_ends` began: mark the claims in ``ended`` as ended, and renew the others again.

        :param begun: the result of :meth:`begin_ends`. Claims that were not held before are not held now.
        """
        with self._lock:
            for claim in ended:
                self._held.pop(claim, None)
                self._undelivered.pop(claim, None)
                claim.mark_ended()
                if self.unsent:
                    self.unsent.pop(claim, None)
            self.hold(*[claim for claim in begun if self._ending.pop(claim, False)])

    def leave_to_end(self, claim: Claim) -> bool:
        """Return whether a claim has ended or is ending. Do not hold an ending claim again if its end fails.

        The end may be in a transaction of the caller's: another end would wait for its locks. If that transaction is
        rolled back, the job comes back when the lease has lapsed.
        """
        with self._lock:
            if claim in self._ending:
                self._ending[claim] = False
            return claim.ended or claim in self._ending
