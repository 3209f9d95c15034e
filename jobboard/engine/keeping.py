"""Keeping claims: renewing them, and clearing up behind those that nobody holds any more."""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator, Sequence

from jobboard import states
from jobboard.engine.calls import Committer, change_by, standing
from jobboard.engine.errands import Errands
from jobboard.engine.limits import revive
from jobboard.engine.store import Change, Stored
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import Nonce, Renewed, Seen
from jobboard.states import CLAIMED, OK, TRASHED, Holder, Record, Verb

LOG = logging.getLogger(__name__)


class ClaimKeeper:
    """Where a lease or a session keeps claims. A lease ends by itself; behind a session there may be errands to run."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._errands = Errands()
        self._forsaken: set[tuple[str, int]] = set()
        self._doubted: dict[tuple[str, int], Nonce] = {}

    def reconnected(self) -> None:
        self._errands.soon()

    def close(self, patience: float) -> None:
        self._errands.close(patience)

    def renew(self, handle: str, held: Sequence[tuple[str, int]], ttl: int) -> Renewed:
        """See :meth:`Engine.renew <jobboard.engine.Engine.renew>`."""
        store = self._committer.store
        leased = store.keeps == "lease"
        lost: list[tuple[str, int]] = []
        unkept: list[tuple[str, int, int | None]] = []
        asked = list(held)
        for _ in self._committer.tries():
            found = store.read([uuid for uuid, _ in asked])
            changes: dict[tuple[str, int], Change] = {}
            revived: dict[tuple[str, int], Change] = {}
            for claim, stored in zip(asked, found.jobs, strict=True):
                record = standing(stored, found.now)
                if stored is None or record is None or record.token != claim[1] or record.state == TRASHED:
                    lost.append(claim)
                elif record.keeper != handle or record.who is None:
                    # A clock that lags shows more than there is.
                    unkept.append((*claim, Seen.at(found.now + store.precision, record).stands))
                else:
                    until = found.now + ttl if leased else None
                    # A lapse that no sweep has written down is not to show.
                    after = record._replace(state=CLAIMED, lock_until=until, errors=stored.record.errors)
                    if after != stored.record or not stored.alive or stored.passing:
                        stands = record.state == CLAIMED
                        (changes if stands else revived)[claim] = Change(stored, after)
            done = {id(change) for change in self._committer.apart(list(changes.values()))}
            asked = [claim for claim, change in changes.items() if id(change) not in done]
            out, again = revive(self._committer, revived)
            lost += out
            asked += again
            if not asked:
                return Renewed(lost, ttl if leased else store.margin, unkept=unkept)
        raise AssertionError("unreachable")

    def forsake(self, uuid: str, token: int) -> None:
        """See :meth:`Engine.forsake <jobboard.engine.Engine.forsake>`."""
        self._forsaken.add((uuid, token))
        self._errands.add(functools.partial(self._free, uuid, token))

    @contextlib.contextmanager
    def wanted_again(self, uuid: str, token: int | None) -> Iterator[None]:
        """Call the errand off that frees a lost claim, while its holder extends it. If that fails, nobody keeps it."""
        forsaken = token is not None and (uuid, token) in self._forsaken
        if token is not None:
            self._forsaken.discard((uuid, token))
        try:
            yield
        except BaseException:
            if token is not None and forsaken:
                self.forsake(uuid, token)
            raise

    def _free(self, uuid: str, token: int) -> None:
        for _ in self._committer.tries():
            now, stored, record = self._claimed(uuid, token)
            if stored is None or record is None or record.keeper is None or (uuid, token) not in self._forsaken:
                break
            if self._committer.alone(Change(stored, states.lapse(record, now))):
                break
        self._forsaken.discard((uuid, token))

    def doubt(self, nonce: Nonce) -> None:
        """See :meth:`Engine.doubt <jobboard.engine.Engine.doubt>`."""
        # While an earlier one is in doubt, nothing was sent of this one.
        self._doubted.setdefault((nonce.handle, nonce.slot), nonce)
        self._errands.add(functools.partial(self._clear_up, nonce))

    def clear_up_before(self, nonce: Nonce) -> None:
        """The next call of a slot overwrites what tells what the one in doubt has done."""
        doubted = self._doubted.get((nonce.handle, nonce.slot))
        if doubted is not None and doubted.call < nonce.call:
            try:
                self._clear_up(doubted)
            except ConnectionFailure as error:
                error.outcome = "none"
                raise

    def _clear_up(self, nonce: Nonce) -> None:
        if self._doubted.get((nonce.handle, nonce.slot)) != nonce:
            return
        answer = self._committer.fence(nonce)
        for status, uuid, token in answer.done if answer is not None else ():
            if status == OK and token:
                LOG.warning("job %s was claimed for nobody; it is given back", uuid)
                self._give_back(uuid, token)
        self._doubted.pop((nonce.handle, nonce.slot), None)

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
        """The job as it stands, while this claim of it does."""
        found, stored, record = self._committer.one(uuid)
        stands = record is not None and record.state == CLAIMED and record.token == token
        return found.now, stored, record if stands else None
