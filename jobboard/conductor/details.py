"""The arguments of handlers: which details a handler takes, and their checks and conversions by its annotations.

Details travel as JSON. pydantic reads them in its strict mode for JSON, in which a text can be a UUID or a date, and
never a number. All that can be prepared is prepared when the handler is registered.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import functools
import inspect
import json
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from jobboard import codec
from jobboard.exceptions import MissingDriver
from jobboard.job import Job
from jobboard.outcomes import Reject, Retry

Invalid = Literal["retry", "trash"]
Unknown = Literal["ignore", "retry", "trash"]

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_UNTYPED = (Any, object, inspect.Parameter.empty)
_JSON_TYPES = (str, int, float, bool, type(None), list, dict, collections.abc.Mapping, collections.abc.Sequence)

_HARMLESS = frozenset(
    (
        *("gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "actual_length", "pattern", "expected"),
        *("max_digits", "decimal_places", "whole_digits", "class", "class_name", "field_type", "expected_schemes"),
    )
)
"""The parts of pydantic's messages that hold no value of the details."""

_MOST = 10
"""The number of bad fields that an error names."""

_STARS = '"**********"'
"""The JSON that pydantic makes of a secret."""


class InvalidDetails(TypeError, ValueError):
    """Details that do not fit the parameters of their handler. The text has the path of each bad field, no value."""


class Takes(NamedTuple):
    """The arguments of a handler: the job, or not, and the ``details`` of these names; None for all details.

    **A positional parameter receives the job. A keyword-only parameter receives the detail of the same name.** A
    positional parameter that is a dataclass, a TypedDict or a pydantic model receives all details.

    form: the checks and conversions of the details; None if there are none.
    """

    job: bool
    details: frozenset[str] | None
    form: Form | None = None

    @classmethod
    def of(cls, handler: Callable[..., object], invalid: Invalid = "retry", unknown: Unknown = "ignore") -> Takes:
        """Read the arguments from the handler's signature.

        :param invalid: what becomes of a job whose details do not fit.
        :param unknown: what becomes of a job with details that the handler does not take.
        :raises TypeError: the handler needs more than a job by position, or an annotation has no conversion.
        :raises MissingDriver: an annotation needs a conversion, and pydantic is not installed.
        """
        if invalid not in typing.get_args(Invalid):
            raise ValueError(f"invalid={invalid!r}: must be 'retry' or 'trash'")
        if unknown not in typing.get_args(Unknown):
            raise ValueError(f"unknown={unknown!r}: must be 'ignore', 'retry' or 'trash'")
        try:
            parameters = inspect.signature(handler).parameters.values()
        except ValueError:
            # Some callables written in C have no signature.
            return cls(job=True, details=frozenset())
        positional = [each for each in parameters if each.kind in _POSITIONAL]
        hints = [_hint_of(handler, each) for each in positional[:2]]
        place = next((place for place, hint in enumerate(hints) if _is_model(hint)), None)
        rest = positional[1 if place is None else place + 1 :]
        if more := [each.name for each in rest if each.default is each.empty]:
            raise TypeError(
                f"a handler gets its job, and nothing else by position: put a * before {more[0]!r}, and it gets the "
                "detail of that name"
            )
        named = [each for each in parameters if each.kind == each.KEYWORD_ONLY]
        var_keyword = any(each.kind == each.VAR_KEYWORD for each in parameters)
        if place is not None:
            whole = positional[place].name
            if needs := [each.name for each in named if each.default is each.empty]:
                raise TypeError(f"{whole!r} gets all details of {_name_of(handler)}: give {needs[0]!r} a default")
            model = _Model(whole, hints[place], _Converter(handler, whole, hints[place]))
            form = Form(handler, invalid, unknown, model.names, model=model)
            return cls(job=place == 1, details=frozenset(), form=form)
        job = bool(positional) or any(each.kind == each.VAR_POSITIONAL for each in parameters)
        names = frozenset(each.name for each in named)
        if job and not names:
            # The handler reads the details of its job itself. ** is for other callers of the function.
            return cls(job, names)
        details = None if var_keyword else names
        converters = _converters(handler, named)
        if not converters and (invalid, unknown) == ("retry", "ignore"):
            return cls(job, details)
        needed = frozenset(each.name for each in named if each.default is each.empty)
        return cls(job, details, Form(handler, invalid, unknown, details, needed, converters))

    def arguments(self, job: Job) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the arguments of a call by position and by name.

        :raises InvalidDetails, Reject, Retry: the details do not fit.
        """
        jobs = (job,) if self.job else ()
        if self.form is not None:
            args, kwargs = self.form.convert(job.details)
            return (*jobs, *args), kwargs
        if self.details is None:
            return jobs, job.details
        if not self.details:
            # The details of a job may be unreadable: leave them alone.
            return jobs, {}
        return jobs, {name: value for name, value in job.details.items() if name in self.details}


class Form:
    """The checks and conversions of the details of one handler.

    :param known: the names of the details that the handler takes; None for any.
    :param needed: the names of the details without a default.
    :param converters: by the names of keyword-only parameters.
    :param model: the parameter that receives all details, if there is one.
    """

    def __init__(
        self,
        handler: Callable[..., object],
        invalid: Invalid,
        unknown: Unknown,
        known: frozenset[str] | None,
        needed: frozenset[str] = frozenset(),
        converters: Mapping[str, _Converter] = types.MappingProxyType({}),
        model: _Model | None = None,
    ) -> None:
        self.model = model
        self._origin = (handler, invalid, unknown)
        self._invalid, self._unknown = invalid, unknown
        self._known, self._needed, self._converters = known, needed, converters

    def __reduce__(self) -> tuple[Any, ...]:
        # Converters do not travel to worker processes.
        return _form_of, self._origin

    def convert(self, details: Mapping[str, Any]) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """Return the details of a job as arguments by position and by name.

        :raises InvalidDetails, Reject, Retry: the details do not fit.
        """
        # Unknown details may come from a newer poster, whose other details do not fit either.
        if self._unknown != "ignore" and (more := self._more(details)):
            text = _joined(f"details.{name}: the handler takes no such detail" for name in more)
            raise Reject(text) if self._unknown == "trash" else Retry(text)
        arguments, problems = self._checked(details)
        if problems:
            text = _joined(problems)
            raise Reject(text) if self._invalid == "trash" else InvalidDetails(text)
        return arguments

    def posted(self, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """Return the details to post for these arguments of a post.

        :raises InvalidDetails: the details do not fit.
        """
        if self.model is None:
            typed = {name: _jsonable(named[name], name) for name in named.keys() & self._converters.keys()}
            details = {**named, **typed}
        else:
            details = self._of_model(self.model, args, named)
        details = codec.check_details(details, sys.maxsize)
        _, problems = self._checked(details)
        if problems:
            raise InvalidDetails(_joined(problems))
        return details

    def _of_model(self, model: _Model, args: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        if len(args) > 1 or (args and named):
            raise TypeError(f"give {model.name!r}, or its fields by their names")
        if not args and named.keys() == {model.name} and model.is_instance(named[model.name]):
            args = (named[model.name],)
        if args:
            details = _jsonable(args[0], model.name)
            if not isinstance(details, dict):
                raise InvalidDetails(f"{model.name!r} must be a {model.type.__name__}, not {type(args[0]).__name__}")
        else:
            details = {name: _jsonable(value, name) for name, value in named.items()}
        if more := self._more(details):
            raise InvalidDetails(f"{model.name!r} has no field {more[0]!r}")
        return details

    def _more(self, details: Mapping[str, Any]) -> list[str]:
        return [] if self._known is None else sorted(details.keys() - self._known)

    def _checked(self, details: Mapping[str, Any]) -> tuple[tuple[tuple[Any, ...], dict[str, Any]], list[str]]:
        """Return the arguments, and the problems for which they don't count."""
        problems: list[str] = []
        if self.model is not None:
            return ((self.model.converter(details, "details", problems),), {}), problems
        problems += (f"details.{name}: Field required" for name in sorted(self._needed - details.keys()))
        named = {name: value for name, value in details.items() if self._known is None or name in self._known}
        for name, converter in self._converters.items():
            if name in named:
                named[name] = converter(named[name], f"details.{name}", problems)
        return ((), named), problems


class _Converter:
    """A conversion to the annotation of one parameter."""

    def __init__(self, handler: Callable[..., object], name: str, hint: Any) -> None:
        """
        :raises TypeError: pydantic has no conversion to the annotation.
        :raises MissingDriver: pydantic is not installed.
        """
        try:
            from pydantic import TypeAdapter, ValidationError
            from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
            from pydantic_core.core_schema import ErrorType
        except ImportError as error:
            raise MissingDriver(
                f"{_name_of(handler)}: the annotation of {name!r}, {_shown(hint)}, needs a conversion, and that needs "
                "pydantic: pip install '.[typed]' in a clone of jobboard, or leave the annotation out",
                error,
            ) from error
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(hint)
            if not getattr(adapter, "pydantic_complete", True):
                # Raises, or has found names that were defined after their class.
                adapter.rebuild(raise_errors=True)
        except (PydanticUserError, PydanticUndefinedAnnotation) as error:
            raise TypeError(
                f"{_name_of(handler)}: the annotation of {name!r}, {_shown(hint)}, has no conversion: leave it out, or "
                f"bind {name!r} by functools.partial ({error.message})"
            ) from error
        self._read = adapter.validate_json
        self._refusal = ValidationError
        self._kinds = frozenset(typing.get_args(ErrorType))

    def __call__(self, value: Any, path: str, problems: list[str]) -> Any:
        """Return the converted value, or add what is wrong to ``problems``."""
        try:
            return self._read(json.dumps(value), strict=True)
        except self._refusal as error:
            problems += map(functools.partial(self._problem, path), error.errors(include_url=False))

    def _problem(self, path: str, error: Mapping[str, Any]) -> str:
        path += "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error["loc"])
        # Other messages may hold a value, or a part of it.
        if error["type"] in self._kinds and error.get("ctx", {}).keys() <= _HARMLESS:
            return f"{path}: {error['msg']}"
        return f"{path}: the value does not fit ({error['type']})"


class _Model(NamedTuple):
    """The parameter that receives all details, and its class."""

    name: str
    hint: Any
    converter: _Converter

    @property
    def type(self) -> Any:
        return _class_of(self.hint)

    @property
    def names(self) -> frozenset[str] | None:
        """The names of its fields, aliases among them; None if the model takes others, too."""
        model: Any = self.type
        config = getattr(model, "model_config", None) or getattr(model, "__pydantic_config__", None) or {}
        if config.get("extra") == "allow":
            return None
        if _is_typed_dict(model):
            return frozenset(model.__required_keys__ | model.__optional_keys__)
        fields = getattr(model, "__pydantic_fields__", None) or getattr(model, "model_fields", None)
        if fields is None:
            return frozenset(field.name for field in dataclasses.fields(model))
        names = set(fields)
        for alias in (field.validation_alias for field in fields.values()):
            for choice in getattr(alias, "choices", (alias,)):
                names.update([choice] if isinstance(choice, str) else getattr(choice, "path", ())[:1])
        return frozenset(names)

    def is_instance(self, value: Any) -> bool:
        return isinstance(value, dict if _is_typed_dict(self.type) else self.type)


def _form_of(*origin: Any) -> Form | None:
    return Takes.of(*origin).form


def _converters(handler: Callable[..., object], named: Iterable[inspect.Parameter]) -> dict[str, _Converter]:
    """Return the conversions of keyword-only parameters.

    :raises TypeError, MissingDriver: an annotation has no conversion.
    """
    # A bound argument is no detail, and may be of any class.
    bound = handler.keywords if isinstance(handler, functools.partial) else {}
    converters = {}
    for each in named:
        if each.name in bound or each.annotation in _UNTYPED:
            continue
        hint = _hint_of(handler, each)
        if hint is each.empty:
            raise TypeError(
                f"{_name_of(handler)}: the annotation of {each.name!r}, {each.annotation!r}, can't be resolved: import "
                "its names outside of TYPE_CHECKING and before the handler, or leave the annotation out"
            )
        if hint in _UNTYPED:
            continue
        try:
            converters[each.name] = _Converter(handler, each.name, hint)
        except MissingDriver:
            if not _is_json(hint):
                raise
    return converters


def _hint_of(handler: Callable[..., object], parameter: inspect.Parameter) -> Any:
    """Return the resolved annotation of a parameter; ``empty`` if there is none, or it can't be resolved."""
    if parameter.annotation is parameter.empty:
        return parameter.empty
    holder: Any = types.SimpleNamespace(__annotations__={"hint": parameter.annotation})
    try:
        return typing.get_type_hints(holder, _globals_of(handler), include_extras=True)["hint"]
    except Exception:  # noqa: BLE001 - the text of an annotation may raise anything
        return parameter.empty


def _globals_of(handler: Any) -> dict[str, Any]:
    """Return the global variables of the function whose signature a handler has."""
    while True:
        handler = inspect.unwrap(handler)
        if isinstance(handler, functools.partial):
            handler = handler.func
        elif inspect.ismethod(handler):
            handler = handler.__func__
        elif isinstance(handler, types.FunctionType):
            return handler.__globals__
        elif isinstance(type(handler).__call__, types.FunctionType):
            handler = type(handler).__call__
        else:
            return {}


def _class_of(hint: Any) -> Any:
    """Return the class of an annotation without its metadata and parameters."""
    if typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    return typing.get_origin(hint) or hint


def _is_model(hint: Any) -> bool:
    model = _class_of(hint)
    return isinstance(model, type) and (
        dataclasses.is_dataclass(model) or _is_typed_dict(model) or hasattr(model, "model_fields")
    )


def _is_typed_dict(model: type) -> bool:
    # typing does not know the TypedDict of typing_extensions, which pydantic wants before Python 3.12.
    return issubclass(model, dict) and hasattr(model, "__required_keys__")


def _is_json(hint: Any) -> bool:
    """Return whether values of JSON are of this type as they are."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _is_json(args[0])
    if origin is Literal:
        return all(type(each) in _JSON_TYPES for each in args)
    if origin in (typing.Union, types.UnionType, *_JSON_TYPES):
        return all(map(_is_json, args))
    return any(hint is each for each in (*_JSON_TYPES, *_UNTYPED))


def _jsonable(value: Any, name: str) -> Any:
    """Return an argument of a post in types of JSON.

    :raises InvalidDetails: there is no such form.
    """
    from pydantic_core import to_jsonable_python

    try:
        shaped = to_jsonable_python(value, by_alias=True, round_trip=True)
    except Exception:  # noqa: BLE001 - serializers are the user's
        raise InvalidDetails(f"{name!r}: {type(value).__name__} has no form in JSON") from None
    if _STARS in json.dumps(shaped):
        raise InvalidDetails(f"{name!r}: pydantic hides a secret by stars: annotate the field as str")
    return shaped


def _joined(problems: Iterable[str]) -> str:
    found = list(problems)
    more = f"; and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return "; ".join(found[:_MOST]) + more


def _name_of(handler: Callable[..., object]) -> str:
    return getattr(handler, "__qualname__", repr(handler))


def _shown(hint: Any) -> str:
    return getattr(hint, "__qualname__", None) or str(hint)
