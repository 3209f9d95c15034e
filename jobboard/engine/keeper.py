"""The keeper of claims: it renews kept claims, and gives back claims that nobody holds."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from jobboard import runtime, states
from jobboard.codec import decode_note
from jobboard.engine.committer import Committer, change_by, record_at, worn_at
from jobboard.engine.limits import ClaimKey, revive
from jobboard.engine.store import Change, Stored
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import Nonce, Renewed, Seen
from jobboard.states import CLAIMED, OK, TRASHED, Holder, Record, Status, Verb

LOG = logging.getLogger(__name__)


class ClaimKeeper:
    """The renewal of kept claims, and the return of claims that nobody holds.

    A lease ends an abandoned claim by itself. A session, or a process, does not, so two kinds of claims have to be
    given back. The holder of a *forsaken* claim was told that the claim is lost, or nobody works under it, at once or
    from a later time on. A *doubted* call may have claimed a job, and nobody knows its outcome. The heartbeat gives
    both back by :meth:`clear_up`, and repeats that until it has succeeded."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        # The time, on runtime.boottime(), from which nobody works under each of these claims.
        self._forsaken: dict[ClaimKey, float] = {}
        self._doubted: dict[tuple[str, int], Nonce] = {}
        committer.before_call = self._clear_up_before

    def renew(self, handle: str, held: Sequence[ClaimKey], ttl: int) -> Renewed:
        """See :meth:`Engine.renew <jobboard.engine.Engine.renew>`."""
        store = self._committer.store
        leased = store.traits.keeps == "lease"
        lost: list[ClaimKey] = []
        unkept: list[tuple[str, int, int | None]] = []
        missed: list[ClaimKey] = []
        tried: dict[ClaimKey, object] = {}
        asked = list(store.renew(handle, held, ttl))
        for _ in self._committer.tries():
            if not asked:
                return Renewed(lost, ttl - store.precision if leased else store.margin, tuple(missed), unkept)
            found = store.read([uuid for uuid, _ in asked])
            changes: dict[ClaimKey, Change] = {}
            revived: dict[ClaimKey, Change] = {}
            for claim, stored in zip(asked, found.jobs, strict=True):
                record = record_at(stored, found.now)
                if stored is None or record is None or record.token != claim[1] or record.state == TRASHED:
                    lost.append(claim)
                elif claim in tried and tried[claim] == stored.tag:
                    # The commit was refused, and the job has not changed: another transaction holds the job.
                    missed.append(claim)
                elif record.keeper != handle or record.who is None:
                    # The time of a lagging clock would show a longer lease than there is.
                    unkept.append((*claim, Seen.at(found.now + store.precision, record).lease_left))
                else:
                    until = found.now + ttl if leased else None
                    # The renewed record shows no lapse that no sweep has written down.
                    after = record._replace(
                        state=CLAIMED, lock_until=until, errors=stored.record.errors, expires=stored.record.expires
                    )
                    if after != stored.record or not stored.alive or stored.passing:
                        tried[claim] = stored.tag
                        is_claimed = record.state == CLAIMED
                        (changes if is_claimed else revived)[claim] = Change(stored, after)
            before = worn_at((change.before for change in changes.values()), found.now)
            done = {id(change) for change in self._committer.commit_each(list(changes.values()), before=before)}
            out, again = revive(self._committer, revived)
            # Nobody has refused their tokens: they have lapsed, as a full limit leaves no room for their return.
            unkept += [(*claim, 0) for claim in out]
            asked = [*(claim for claim, change in changes.items() if id(change) not in done), *again]
        raise AssertionError("unreachable")

    def note(self, handle: str, notes: Sequence[tuple[str, int, bytes | str]], ttl: int) -> list[Status | None]:
        """See :meth:`Engine.note <jobboard.engine.Engine.note>`."""
        asked: dict[ClaimKey, bytes | str] = {(uuid, token): note for uuid, token, note in notes}
        answers: dict[ClaimKey, Status | None] = {}
        tried: dict[ClaimKey, object] = {}
        renewed: set[ClaimKey] = set()
        for _ in self._committer.tries():
            left = [claim for claim in asked if claim not in answers]
            if not left:
                # A note that is stored already was perhaps stored by a try without an answer.
                self._committer.store.sync()
                return [answers[uuid, token] for uuid, token, _ in notes]
            found = self._committer.store.read([uuid for uuid, _ in left])
            changes: dict[ClaimKey, Change] = {}
            lapsed: list[ClaimKey] = []
            for claim, stored in zip(left, found.jobs, strict=True):
                record, note = record_at(stored, found.now), asked[claim]
                holds = states.check(record, Holder("", claim[1]), found.now) == OK
                if not holds or stored is None or record is None:
                    answers[claim] = Status.LOST
                elif record.state == CLAIMED and record.keeper not in (None, handle):
                    # The commit of a note would move the claim to the session of this handle.
                    answers[claim] = Status.LOST
                elif decode_note(record.note).number >= decode_note(note).number:
                    answers[claim] = OK
                elif claim in tried and tried[claim] == stored.tag:
                    # The commit was refused, and the job has not changed: another transaction holds the job.
                    answers[claim] = None
                elif record.state != CLAIMED and record.keeper == handle and claim not in renewed:
                    lapsed.append(claim)
                else:
                    tried[claim] = stored.tag
                    changes[claim] = Change(stored, record._replace(note=note))
            done = {id(change) for change in self._committer.commit_each(list(changes.values()))}
            answers |= {claim: OK for claim, change in changes.items() if id(change) in done}
            if lapsed:
                # Where a full limit leaves no room for the claim, its note is stored beside its lapse.
                self.renew(handle, lapsed, ttl)
                renewed.update(lapsed)
        raise AssertionError("unreachable")

    # Claims to give back

    def forsake(self, uuid: str, token: int, since: float) -> None:
        """Give a claim back, once the time ``since`` has come."""
        self._forsaken[uuid, token] = since

    def recall(self, uuid: str, token: int | None) -> float | None:
        """Give a claim no longer back. Return the time since when it was to be given back, if it was."""
        return None if token is None else self._forsaken.pop((uuid, token), None)

    def doubt(self, nonce: Nonce) -> None:
        # While an earlier call of the slot is in doubt, this call has sent no request.
        self._doubted.setdefault((nonce.handle, nonce.slot), nonce)

    def clear_up(self, until: float | None = None) -> None:
        """Give back forsaken claims, and the claims of doubted calls. A refused claim does not stop the others.

        :param until: leave claims that are forsaken from a later time on; None: from now on.
        :raises Exception: the last reason why a claim is left.
        """
        last = runtime.boottime() if until is None else until
        forsaken = [claim for claim, since in [*self._forsaken.items()] if since <= last]
        left: Exception | None = None
        acts = [functools.partial(self._answer, nonce) for nonce in [*self._doubted.values()]]
        for act in [*acts, *(functools.partial(self._free, *claim) for claim in forsaken)]:
            try:
                act()
            except ConnectionFailure:
                raise
            except Exception as error:  # noqa: BLE001 - it is raised behind the others
                left = error
        if left is not None:
            raise left

    def _free(self, uuid: str, token: int) -> None:
        for _ in self._committer.tries():
            found, stored, record = self._committer.read_job(uuid)
            if stored is None or record is None or (uuid, token) not in self._forsaken:
                break
            claim = stored.record
            if claim.state != CLAIMED or claim.token != token or claim.keeper is None:
                break
            # A lapse is written down, too: a renewal that is still on its way would move the claim to a living session.
            freed = states.lapse(record, found.now) if record.state == CLAIMED else record
            if self._committer.commit_one(Change(stored, freed)):
                break
        self._forsaken.pop((uuid, token), None)

    def _clear_up_before(self, nonce: Nonce) -> None:
        """Clear up a doubted call before the next call of its slot overwrites its answer."""
        doubted = self._doubted.get((nonce.handle, nonce.slot))
        if doubted is not None and doubted.call < nonce.call:
            try:
                self._answer(doubted)
            except ConnectionFailure as error:
                error.outcome = "none"
                raise

    def _answer(self, nonce: Nonce) -> None:
        """Give back the claims of a doubted call, as its stored answer shows them."""
        answer = self._committer.fence(nonce)
        for status, uuid, token in answer.deeds if answer is not None else ():
            if status == OK and token:
                LOG.warning("job %s was claimed for nobody; it is given back", uuid)
                self._give_back(uuid, token)
        if self._doubted.get((nonce.handle, nonce.slot)) == nonce:
            del self._doubted[nonce.handle, nonce.slot]

    def _give_back(self, uuid: str, token: int) -> None:
        for _ in self._committer.tries():
            now, stored, record = self._read_claim(uuid, token)
            if stored is None or record is None:
                return
            holder = Holder(record.who or "", token)
            _, after = states.finish(record, holder, now, Verb.ABANDON, refund=True)
            if self._committer.commit_one(change_by(Verb.ABANDON, stored, after), before=worn_at([stored], now)):
                return

    def _read_claim(self, uuid: str, token: int) -> tuple[int, Stored | None, Record | None]:
        """Read a job. Return the time, the job as stored, and its record; without a record if this claim has ended."""
        found, stored, record = self._committer.read_job(uuid)
        is_claimed = record is not None and record.state == CLAIMED and record.token == token
        return found.now, stored, record if is_claimed else None
