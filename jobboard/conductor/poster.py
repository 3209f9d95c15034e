"""Posts of jobs as if their handler were called: the ``post`` of a handler that ``handles()`` has registered."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast, overload

from jobboard.conductor.details import InvalidDetails, Takes
from jobboard.conductor.handlers import Handling
from jobboard.job import ClaimedJob, Posting

P = ParamSpec("P")
Q = ParamSpec("Q")
R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class Poster(Generic[P, R_co]):
    """``resize.post(path="a.jpg")`` posts a job whose handler will be called with these arguments.

    The arguments are checked against the handler's signature before anything is sent. Arguments that are left out have
    the handler's own defaults when it is called. A parameter that receives all details is given as an instance, or by
    its fields: ``resize.post(Size(3))``, ``resize.post(width=3)``.

    ``names`` are those of the jobs, and ``handling`` has the options of the registration.
    """

    def __init__(
        self,
        post: Callable[..., R_co],
        names: Sequence[str],
        handler: Callable[..., object],
        options: Mapping[str, Any] = types.MappingProxyType({}),
        handling: Handling | None = None,
    ) -> None:
        self.names = names
        self.handling = handling
        self._post = post
        self._handler = handler
        self._options = options
        self._takes = Takes.of(handler) if handling is None else handling.takes
        self._signature = inspect.signature(handler)

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """
        :raises TypeError: the handler can't be called with these arguments, or it handles jobs of several names.
        :raises InvalidDetails: the arguments do not fit the annotations of the handler.
        """
        return self._post(**self._arguments(args, kwargs))

    def posting(self, /, *args: P.args, **kwargs: P.kwargs) -> Posting:
        """Return the posting instead of posting it, for ``post_many``."""
        return Posting(**self._arguments(args, kwargs))

    def options(self, /, **options: Any) -> Self:
        """Return a poster with more arguments of ``board.post``: ``resize.post.options(priority=50)(path="a.jpg")``."""
        return type(self)(self._post, self.names, self._handler, {**self._options, **options}, self.handling)

    def _arguments(self, args: tuple[Any, ...], details: dict[str, Any]) -> dict[str, Any]:
        takes, signature = self._takes, self._signature
        if len(self.names) > 1:
            raise TypeError(
                f"{_name_of(self._handler)} handles jobs named {', '.join(self.names)}: "
                "post one of them by board.post()"
            )
        try:
            if takes.form is None or takes.form.model is None:
                if args:
                    raise TypeError("arguments are given by their names")
                unknown = sorted(details.keys() - takes.details) if takes.details is not None else []
                if unknown:
                    raise TypeError(f"it takes no detail {unknown[0]!r}; its details are its keyword-only parameters")
                signature.bind(*((None,) if takes.job else ()), **details)
            if takes.form is not None:
                details = takes.form.posted(args, details)
        except TypeError as error:
            kind = InvalidDetails if isinstance(error, InvalidDetails) else TypeError
            raise kind(f"{_name_of(self._handler)}{signature} can't be called so: {error}") from None
        return {"name": self.names[0], "details": details, **self._options}


class Handled(Protocol[Q, P, T_co, R_co]):
    """A handler that was registered: the function as it was, with ``post``."""

    @property
    def post(self) -> Poster[P, R_co]: ...

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> T_co: ...


class Registering(Generic[R_co]):
    """The decorator that ``handles()`` gives."""

    def __init__(
        self, register: Callable[[Callable[..., object]], Handling], post: Callable[..., R_co], names: Sequence[str]
    ) -> None:
        self.register = register
        self._post = post
        self._names = names

    @overload
    def __call__(
        self, handler: Callable[Concatenate[ClaimedJob, P], T_co]
    ) -> Handled[Concatenate[ClaimedJob, P], P, T_co, R_co]: ...
    @overload
    def __call__(self, handler: Callable[P, T_co]) -> Handled[P, P, T_co, R_co]: ...
    def __call__(self, handler: Any) -> Any:
        handling = self.register(handler)
        # An instance may have a post of its own.
        if isinstance(handler, types.FunctionType):
            cast(Any, handler).post = Poster[Any, R_co](self._post, self._names, handler, handling=handling)
        return handler


def _name_of(handler: Callable[..., object]) -> str:
    return getattr(handler, "__qualname__", repr(handler))
