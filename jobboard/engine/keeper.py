"""The keeper of claims: renews those that a handle keeps, and gives back those that nobody holds any more."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

from jobboard import states
from jobboard.engine.calls import Committer, change_by, standing
from jobboard.engine.limits import ClaimKey, revive
from jobboard.engine.store import Change, Stored
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import Nonce, Renewed, Seen
from jobboard.states import CLAIMED, OK, TRASHED, Holder, Record, Verb

LOG = logging.getLogger(__name__)


class ClaimKeeper:
    """Where a lease keeps claims, a claim ends by itself. Behind a session, two kinds of claims have to be given back:
    *forsaken* ones, which their holder has been told are lost, and those of *doubted* calls, of which nobody knows
    whether they have claimed. The heartbeat gives them back, by :meth:`clear_up`, until that has succeeded."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._forsaken: set[ClaimKey] = set()
        self._doubted: dict[tuple[str, int], Nonce] = {}
        committer.before_call = self._clear_up_before

    def renew(self, handle: str, held: Sequence[ClaimKey], ttl: int) -> Renewed:
        """See :meth:`Engine.renew <jobboard.engine.Engine.renew>`."""
        store = self._committer.store
        leased = store.keeps == "lease"
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
                record = standing(stored, found.now)
                if stored is None or record is None or record.token != claim[1] or record.state == TRASHED:
                    lost.append(claim)
                elif claim in tried and tried[claim] == stored.tag:
                    # It was refused, and has not changed: another transaction holds it.
                    missed.append(claim)
                elif record.keeper != handle or record.who is None:
                    # A clock that lags shows more than there is.
                    unkept.append((*claim, Seen.at(found.now + store.precision, record).stands))
                else:
                    until = found.now + ttl if leased else None
                    # A lapse that no sweep has written down is not to show.
                    after = record._replace(state=CLAIMED, lock_until=until, errors=stored.record.errors)
                    if after != stored.record or not stored.alive or stored.passing:
                        tried[claim] = stored.tag
                        stands = record.state == CLAIMED
                        (changes if stands else revived)[claim] = Change(stored, after)
            done = {id(change) for change in self._committer.apart(list(changes.values()))}
            out, again = revive(self._committer, revived)
            lost += out
            asked = [*(claim for claim, change in changes.items() if id(change) not in done), *again]
        raise AssertionError("unreachable")

    # What is to be given back

    def forsake(self, uuid: str, token: int) -> None:
        self._forsaken.add((uuid, token))

    def recall(self, uuid: str, token: int | None) -> bool:
        """Return whether this claim was to be given back, which it no longer is."""
        forsaken = token is not None and (uuid, token) in self._forsaken
        if token is not None:
            self._forsaken.discard((uuid, token))
        return forsaken

    def doubt(self, nonce: Nonce) -> None:
        # While an earlier call of the slot is in doubt, nothing was sent of this one.
        self._doubted.setdefault((nonce.handle, nonce.slot), nonce)

    def clear_up(self) -> None:
        """Give back what is to be given back. What is refused for its own sake keeps the rest from nothing.

        :raises Exception: the last of the reasons for which something is left.
        """
        left: Exception | None = None
        acts = [functools.partial(self._answer, nonce) for nonce in [*self._doubted.values()]]
        for act in [*acts, *(functools.partial(self._free, *claim) for claim in [*self._forsaken])]:
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
            now, stored, record = self._claimed(uuid, token)
            if stored is None or record is None or record.keeper is None or (uuid, token) not in self._forsaken:
                break
            if self._committer.alone(Change(stored, states.lapse(record, now))):
                break
        self._forsaken.discard((uuid, token))

    def _clear_up_before(self, nonce: Nonce) -> None:
        """The next call of a slot overwrites the answer that shows what the call in doubt has done."""
        doubted = self._doubted.get((nonce.handle, nonce.slot))
        if doubted is not None and doubted.call < nonce.call:
            try:
                self._answer(doubted)
            except ConnectionFailure as error:
                error.outcome = "none"
                raise

    def _answer(self, nonce: Nonce) -> None:
        """Find out what a doubted call has done, and give back what it has claimed."""
        answer = self._committer.fence(nonce)
        for status, uuid, token in answer.done if answer is not None else ():
            if status == OK and token:
                LOG.warning("job %s was claimed for nobody; it is given back", uuid)
                self._give_back(uuid, token)
        if self._doubted.get((nonce.handle, nonce.slot)) == nonce:
            del self._doubted[nonce.handle, nonce.slot]

    def _give_back(self, uuid: str, token: int) -> None:
        for _ in self._committer.tries():
            now, stored, record = self._claimed(uuid, token)
            if stored is None or record is None:
                return
            holder = Holder(record.who or "", token)
            _, after = states.finish(record, holder, now, Verb.ABANDON, refund=True)
            if self._committer.alone(change_by(Verb.ABANDON, stored, after)):
                return

    def _claimed(self, uuid: str, token: int) -> tuple[int, Stored | None, Record | None]:
        """Return the job as it stands, while this claim of it does."""
        found, stored, record = self._committer.one(uuid)
        stands = record is not None and record.state == CLAIMED and record.token == token
        return found.now, stored, record if stands else None
