"""One connected life of a board: its handle, the slots of its calls, the claims that it keeps, and its waiters."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from oslo_utils import uuidutils

from jobboard import logs
from jobboard.exceptions import ConnectionFailure
from jobboard.heartbeat import Heartbeat
from jobboard.job import Claim, boottime
from jobboard.primitives import Nonce, Renewed
from jobboard.retry import retrying
from jobboard.standing import Trigger
from jobboard.states import Record

T = TypeVar("T")

LOG = logs.Log(__name__)

END_OF_BEAT = 3.5
"""For how many seconds the end of a board waits for a renewal under way."""


class _Calls(threading.local):
    until: float | None = None


_calls = _Calls()


def time_left() -> float | None:
    """For how many seconds the call that this thread is in may still be repeated; None outside of any call."""
    return None if _calls.until is None else max(0.0, _calls.until - boottime())


class Session:
    """Made by ``connect()``, ended by ``close()`` and replaced in a forked child.

    :param renew: renews what this session holds, at each beat, and has :meth:`confirm` take in the answer.
    :param on_lost: told once about each claim that is lost.
    :param on_doubt: told of a mutation whose retries have run out and whose outcome is unknown.
    :param on_event: told of what other processes have done.
    :param slot_calls: after how many calls a slot is no longer used.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        retry_for: float,
        renew: Callable[[Session], None],
        on_lost: Callable[[Claim], None],
        on_doubt: Callable[[Nonce], None] = lambda nonce: None,
        on_event: Callable[[str, Record], None] = lambda event, record: None,
        slot_calls: float = math.inf,
    ) -> None:
        self.handle = uuidutils.generate_uuid(dashed=False)
        self.entities: dict[tuple[str, str], Any] = {}
        # Held while the backend is told of them.
        self.roster = threading.Lock()
        self.closed = False
        # Who is not through with a board that was connected for their sake alone.
        self.borrowers = 0
        self._retry_for = retry_for
        self._on_lost = on_lost
        self._on_doubt = on_doubt
        self.happened = on_event
        self._slot_calls = slot_calls
        self._heartbeat = Heartbeat(name, lambda: self._beat(renew), interval)
        self._beating = False
        # In the order in which they came; and since when, on this machine's clock, each is to be kept.
        self._held: dict[Claim, float] = {}
        # Whether each is to be kept again if that comes to nothing.
        self._ending: dict[Claim, bool] = {}
        self._extending: list[Claim] = []
        # Held while a claim is let go of as lost, and told of: no extension of the claim begins in between.
        self._losing = threading.Lock()
        self._slots: deque[Nonce] = deque()
        self._slot_count = 0
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._alarm = threading.Condition(self._lock)
        self.alarms = 0
        self._generation = 0
        self._looked = threading.local()

    # Calls, repeated while the backend can't be reached, until retry_for is used up.

    def _until(self) -> float:
        # What the end of a board gives back is tried once, and not waited for.
        return boottime() + (0 if self.closed else self._retry_for)

    def mutate(self, primitive: Callable[..., T], *args: Any, **extra: Any) -> tuple[T, float]:
        """Call a mutation with a nonce as its last argument, the same one each time it has to be repeated.

        Its answer, and when the try that was answered was sent (on :func:`~jobboard.job.boottime`).
        """
        nonce = self._borrow()
        around, _calls.until = _calls.until, self._until()
        worn = False
        try:
            sent = boottime()
            answer = primitive(*args, nonce, **extra), sent
            # A try that may still be on its way is refused because of the next call of its slot.
            worn = nonce.call >= self._slot_calls
            return answer
        except ConnectionFailure as error:
            attempts = itertools.count(2)

            def again() -> tuple[T, float]:
                sent = boottime()
                return primitive(*args, nonce._replace(attempt=next(attempts)), **extra), sent

            return self._again(again, error, lambda: self._on_doubt(nonce))
        except Exception:
            raise
        except BaseException:
            # Interrupted: what came of it is nobody's.
            self._on_doubt(nonce)
            raise
        finally:
            _calls.until = around
            if not worn:
                self._slots.append(Nonce(nonce.handle, nonce.slot, nonce.call + 1))

    def query(self, primitive: Callable[..., T], *args: Any) -> T:
        """Call a primitive that changes nothing, or that may be repeated as it is."""
        around, _calls.until = _calls.until, self._until()
        try:
            return primitive(*args)
        except ConnectionFailure as error:
            return self._again(lambda: primitive(*args), error)
        finally:
            _calls.until = around

    def _borrow(self) -> Nonce:
        """A slot that no other call is using."""
        try:
            return self._slots.pop()
        except IndexError:
            with self._lock:
                self._slot_count += 1
                return Nonce(self.handle, self._slot_count, 1)

    def _again(self, call: Callable[[], T], first: ConnectionFailure, doubt: Callable[[], None] = lambda: None) -> T:
        """:param doubt: called where one try may have been carried out, and none has told."""
        unknown = first.outcome == "unknown"
        left = time_left()
        if not left or self.closed:
            if unknown:
                doubt()
            raise first

        def attempt() -> T:
            nonlocal unknown
            try:
                return call()
            except ConnectionFailure as error:
                unknown = unknown or error.outcome == "unknown"
                raise

        def worth_it(error: BaseException) -> bool:
            return isinstance(error, ConnectionFailure) and not self.closed and bool(time_left())

        def pause(seconds: float) -> None:
            self.pause(min(seconds, time_left() or 0))

        LOG.warning("trying again for %.3g s: %s", left, first)
        try:
            return retrying(worth_it, left, sleep=pause)(attempt)
        except BaseException as error:
            if unknown:
                if isinstance(error, ConnectionFailure):
                    error.outcome = "unknown"
                # What was refused now may have been done before.
                doubt()
            raise

    # Claims that this board keeps.

    def hold(self, *claims: Claim) -> None:
        """Keep claims: what has ended meanwhile is not kept, and what is being ended only if that comes to nothing."""
        with self._lock:
            self._hold(claims)

    def _hold(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            if claim in self._ending:
                self._ending[claim] = True
        self._keep([claim for claim in claims if claim not in self._ending])

    def _keep(self, claims: Iterable[Claim]) -> None:
        standing = [claim for claim in claims if not claim.ended]
        # First: what nobody renews is not to be held, nor what raises here, once somebody renews the others.
        if standing:
            self._start_beating()
        self._held.update(dict.fromkeys(standing, boottime()))

    def let_go(self, *claims: Claim) -> set[Claim]:
        """Stop keeping claims; those of them that were kept."""
        with self._lock:
            return self._let_go(claims)

    def _let_go(self, claims: Sequence[Claim]) -> set[Claim]:
        kept = self._held.keys() & claims
        for claim in kept:
            del self._held[claim]
        for claim in self._ending.keys() & claims:
            self._ending[claim] = False
        return kept

    @contextlib.contextmanager
    def extending(self, claim: Claim) -> Iterator[None]:
        """Keep the heartbeat from letting go of a claim as lost, while its holder asks for an extension. If the
        extension fails, the next beat lets go of the claim."""
        with self._losing:
            self._extending.append(claim)
        try:
            yield
        finally:
            self._extending.remove(claim)

    def extended(self, claim: Claim, deadline: float | None, kept: bool) -> None:
        """Its holder has extended a claim: from now on it is kept, or not; whatever a renewal under way may find."""
        with self._lock:
            claim._stands_until(deadline, kept, Trigger.EXTENDED)
            if kept:
                self._hold([claim])
            else:
                self._let_go([claim])

    def ending(self, claims: Iterable[Claim]) -> list[Claim]:
        """These are about to be ended. They leave the heartbeat before, so that no beat takes their end for a loss.

        Those of which that was not known yet: whoever has told of it says by :meth:`over` what came of it.
        """
        with self._lock:
            begun = [claim for claim in claims if claim not in self._ending]
            for claim in begun:
                self._ending[claim] = claim in self._held
                self._held.pop(claim, None)
        return begun

    def over(self, begun: Iterable[Claim], ended: Iterable[Claim] = ()) -> None:
        """What :meth:`ending` has answered is over: these have ended, and the others are kept as before."""
        with self._lock:
            for claim in ended:
                self._held.pop(claim, None)
                claim._step(Trigger.ENDED)
            self._keep([claim for claim in begun if self._ending.pop(claim)])

    def leave(self, claim: Claim) -> bool:
        """Whether a claim has ended, or is being ended; if that comes to nothing, it is not kept again."""
        with self._lock:
            if claim in self._ending:
                self._ending[claim] = False
            return claim.ended or claim in self._ending

    def let_go_of(self, uuid: str) -> None:
        """The job is finished: none of its claims is kept any longer."""
        with self._lock:
            for claim in [claim for claim in self._held if claim.uuid == uuid]:
                del self._held[claim]
                claim._step(Trigger.ENDED)

    def held(self) -> list[Claim]:
        with self._lock:
            return list(self._held)

    def renewable(self, claims: Iterable[Claim]) -> list[Claim]:
        """Return the claims that are still kept and were not found lost.

        A holder that has read a claim as lost may have dropped the job. Nobody else would get the job if the claim were
        renewed."""
        with self._lock:
            return [claim for claim in claims if claim in self._held and not claim._is_found_lost()]

    def confirm(self, asked: list[Claim], sent: float, answer: Renewed) -> None:
        """Take in the answer to a renewal of ``asked`` that was sent then, on :func:`~jobboard.job.boottime`; a claim
        that was let go of or extended meanwhile is none of it."""

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
                    claim._stands_until(until(answer.margin), True)
                    continue
                del self._held[claim]
                if name in refused:
                    claim.kept = False
                    claim._step(Trigger.REFUSED)
                    lost.append(claim)
                elif (left := unkept[name]) is not None:
                    claim._stands_until(until(left), False)
                    if claim._is_lost():
                        lost.append(claim)
        for claim in lost:
            self._on_lost(claim)

    def refused(self, claims: list[Claim]) -> None:
        """These were taken away from here, which whoever works under them reads at once. Their loss is told of by the
        heartbeat, as ever."""
        with self._lock:
            for claim in claims:
                if claim in self._held:
                    claim._step(Trigger.REFUSED)

    def enlist(self, kind: str, name: str, entity: Any) -> None:
        with self._lock:
            self._start_beating()
            self.entities[kind, name] = entity

    def beat_soon(self, start: bool = False) -> None:
        """Renew now, not at the next beat: the connection has come back.

        :param start: beat even if nothing is kept, as there is something to be given back."""
        if start:
            try:
                with self._lock:
                    self._start_beating()
            except RuntimeError as error:
                LOG.warning("claims that nobody holds have to wait: %s", error)
        self._heartbeat.soon()

    def _start_beating(self) -> None:
        if not self._beating and not self.closed:
            self._heartbeat.start()
            self._beating = True

    def _beat(self, renew: Callable[[Session], None]) -> None:
        try:
            renew(self)
        finally:
            # Whoever is told that a claim is lost may drop it: renewed any further, it would never come back.
            with self._losing:
                with self._lock:
                    asked = [claim for claim in self._held if claim._is_lost() and claim not in self._extending]
                    lost = self._let_go(asked)
                    for claim in lost:
                        claim.kept = False
                for claim in lost:
                    self._on_lost(claim)

    # Waiters.

    def look(self) -> None:
        """This thread is about to look for work: what wakes after this is not slept through by its next nap."""
        self._looked.generation = self._generation

    def nap(self, seconds: float) -> bool:
        """Sleep until something of this process's own has woken the board since :meth:`look`, or for ``seconds``;
        whether it was woken."""
        looked = getattr(self._looked, "generation", self._generation)
        with self._news:
            return self._news.wait_for(lambda: self.closed or self._generation != looked, seconds)

    def wake(self) -> None:
        """Something may have become claimable."""
        with self._news:
            self._generation += 1
            self._news.notify_all()

    # Who posts what schedules say.

    def alarm(self) -> None:
        """The schedules may have changed, or something else about whoever waits for the next due time."""
        with self._alarm:
            self.alarms += 1
            self._alarm.notify_all()

    def sleep_until_due(self, seconds: float, alarms: int) -> None:
        """Sleep for so long, or until there has been an alarm since there had been so many."""
        with self._alarm:
            self._alarm.wait_for(lambda: self.closed or self.alarms != alarms, seconds)

    def pause(self, seconds: float) -> None:
        """Sleep between two tries, unless the board is closed."""
        with self._news:
            self._news.wait_for(lambda: self.closed, seconds)

    def end(self) -> list[Claim]:
        """Stop everything; the claims that were kept until now."""
        with self._news:
            self.closed = True
            self._news.notify_all()
            self._alarm.notify_all()
        self._heartbeat.stop(END_OF_BEAT)
        with self._lock:
            kept = list(self._held)
            self._held.clear()
        return kept
