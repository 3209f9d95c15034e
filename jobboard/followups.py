"""Follow-ups: jobs that the commit of a consume posts."""

from __future__ import annotations

import hmac
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from jobboard import arguments, codec, outcomes
from jobboard.ciphers import Seal
from jobboard.exceptions import JobFailure
from jobboard.job import Job, Posting
from jobboard.primitives import POST_BATCH, POST_BYTES, CommitBound, Draft, End, Returned
from jobboard.states import UNCLAIMED, Verb

Postings = Sequence[Posting | Mapping[str, Any]]


@dataclass(frozen=True)
class Then:
    """The return value of a handler whose job has follow-ups.

    The commit that consumes the job posts the ``postings``, or nothing happens: see :meth:`JobBoard.consume
    <jobboard.board.JobBoard.consume>`. ``result`` is the result of the work, as if the handler had returned it.

    A posting that does not fit is a failure of the handler.
    """

    result: Any = None
    postings: Postings = ()


class PostingForm(NamedTuple):
    """The form of a board's postings, which also travels to a process without a board.

    bound: of the store on one commit. seal: stays in the process of the board.
    """

    max_details: int
    wire: codec.Wire
    bound: CommitBound | None
    seal: Seal | None = None


def unique_key(name: str, details: Mapping[str, Any] | None = None, secret: bytes = b"") -> str:
    """Return a ``key=`` for jobs of this name with these details: the same for equal details, in any order.

    :param secret: makes a key that nobody without the secret can compute, where keys are shown and details are private.
    :raises TypeError, ValueError: the details are not of JSON's shape.
    """
    if not isinstance(secret, bytes):
        raise TypeError(f"secret must be bytes, not {type(secret).__name__}")
    codec.check_text("a job's name", name)
    content = [name, codec.check_details(details, sys.maxsize)]
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    return hmac.digest(secret, text.encode(), "sha256").hex()


def checked(then: Any) -> list[Posting]:
    """Return the postings of a ``then``.

    :raises TypeError: it is no list of postings; the error has the number of the bad one.
    """
    if isinstance(then, Posting | Mapping | str):
        raise TypeError(f"then must be a list of postings, not a {type(then).__name__}: write [posting]")
    return arguments.postings(then)


def drafts(
    job: Job, postings: Sequence[Posting], result: Returned | None, form: PostingForm, keeps: bool
) -> list[Draft]:
    """Return the follow-ups of a job in their stored form.

    :param keeps: the job leaves an outcome.
    :raises TypeError, ValueError: a posting does not fit, or one commit can't store all of them.
    """
    made = arguments.drafts(postings, form.max_details, form.wire, form.seal, numbered=True)
    _check_bound(job, made, result, form, keeps)
    return made


def _check_bound(job: Job, made: Sequence[Draft], result: Returned | None, form: PostingForm, keeps: bool) -> None:
    if len(made) > POST_BATCH:
        raise ValueError(f"{len(made)} follow-ups of {job}: one commit stores {POST_BATCH}; let one post the rest")
    size = _size(made, result)
    if form.bound is None or size > POST_BYTES:
        most = POST_BYTES
    else:
        size, most = _stored(job, made, result, form.bound, keeps), form.bound.most
    if size > most:
        raise ValueError(
            f"the result of {job} and its follow-ups take {size} bytes together, and one commit stores {most}: store "
            "large data elsewhere and give a reference to it, or let a follow-up post the rest"
        )


def sealed(job: Job, end: End) -> End:
    """Return the end of a call in a process without the cipher, with its result and follow-ups encrypted.

    :raises TypeError, ValueError: a posting does not fit, once encrypted.
    """
    form, keeps = job.board.posting_form, job.board.result_form
    if form.seal is None:
        return end
    if keeps is not None and end.result is not None and end.result.result is not None:
        end = end._replace(result=codec.returned(codec.decode_result(end.result.result, form.wire), *keeps))
    made = [_sealed_draft(draft, form) for draft in end.then]
    _check_bound(job, made, end.result, form, keeps is not None)
    return end._replace(then=made)


def _sealed_draft(draft: Draft, form: PostingForm) -> Draft:
    content = codec.seal_content(codec.decode(draft.posting, form.wire), form.max_details, form.seal)
    return draft._replace(version=codec.version_of(content.sealed), posting=codec.encode(content, form.wire))


def weight(job: Job, end: End, bound: CommitBound | None, keeps: bool) -> int:
    """Return the share of a consume with follow-ups in one commit: ``POST_BYTES`` are the whole."""
    # Drafts of this size fill a commit by their number.
    size = max(_size(end.then, end.result), len(end.then) * (POST_BYTES // POST_BATCH))
    if bound is not None:
        size = max(size, _stored(job, end.then, end.result, bound, keeps) * POST_BYTES // bound.most)
    return size


def _size(made: Sequence[Draft], result: Returned | None) -> int:
    return len((result and result.result) or "") + sum(len(draft.posting) for draft in made)


def _stored(job: Job, made: Sequence[Draft], result: Returned | None, bound: CommitBound, keeps: bool) -> int:
    """Return the bytes of a commit, at most: a record of a tree also has names in indexes."""
    size = _size(made, result) + (len(job.record.posting) if keeps else 0)
    for draft in made:
        size += bound.around + 3 * len(quote(draft.name + (draft.group or "")))
        if draft.key is not None:
            size += bound.around // 2 + 3 * len(quote(draft.key))
    return size


def end_of(job: Job, returned: object) -> End:
    """Return how the claim of a job ends whose handler has returned. It may have returned a :class:`Then`.

    :raises TypeError, ValueError: a posting does not fit, or the result is a promise of work.
    :raises JobFailure: the handler has ended the claim itself.
    """
    board, form = job.board, job.board.result_form
    then = returned if isinstance(returned, Then) else Then(returned)
    outcomes.check_result(then.result)
    result = None if then.result is None or form is None else codec.returned(then.result, *form)
    made: list[Draft] = []

    def insert(traced: Sequence[Posting]) -> list[Job]:
        made[:] = drafts(job, traced, result, board.posting_form, form is not None)
        return [Job(board, draft.record(0, 0), draft.posting, UNCLAIMED) for draft in made]

    if postings := checked(then.postings):
        if job.claim is not None and job.claim.ended:
            raise JobFailure(
                f"{job}: the handler has ended its claim itself, so that nothing posts the follow-ups that it returns: "
                "give them to its consume(then=)"
            )
        board.tracing.post(postings, insert)
    return End(Verb.CONSUME, result=result, then=made)
