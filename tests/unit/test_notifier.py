"""The notifier: who is called, on which thread, and what a listener can't break."""

import functools
import logging
import threading
from typing import Any

import pytest

from jobboard.notifier import ANY, CLAIMED, CONSUMED, EVENTS, POSTED, Notifier
from jobboard.testing import eventually


def names(heard: list[Any]) -> list[str]:
    return [event for event, _ in heard]


def test_events_reach_those_who_asked() -> None:
    notifier = Notifier()
    posted, everything = [], []
    notifier.register(POSTED, lambda event, details: posted.append((event, details)))
    notifier.register(ANY, lambda event, details: everything.append((event, details)))
    for number, event in enumerate((POSTED, CLAIMED, POSTED)):
        notifier.notify(event, {"job": number})
    notifier.close()
    assert posted == [(POSTED, {"job": 0}), (POSTED, {"job": 2})]
    assert everything == [(POSTED, {"job": 0}), (CLAIMED, {"job": 1}), (POSTED, {"job": 2})]


def test_arguments_and_filter() -> None:
    notifier = Notifier()
    heard: list[Any] = []

    def listen(event: str, details: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        heard.append((details["job"], args, kwargs))

    notifier.register(POSTED, listen, args=(1, 2), kwargs={"c": 3}, details_filter=lambda details: details["job"] > 1)
    for number in range(4):
        notifier.notify(POSTED, {"job": number})
    notifier.close()
    assert heard == [(2, (1, 2), {"c": 3}), (3, (1, 2), {"c": 3})]


async def listen_on_a_loop(*args: Any) -> None: ...


class ListensOnALoop:
    async def __call__(self, *args: Any) -> None: ...


def test_registering() -> None:
    notifier = Notifier()
    listen = lambda event, details: None  # noqa: E731
    assert not notifier.listened_to
    with pytest.raises(ValueError, match="no event 'NONSENSE'"):
        notifier.register("NONSENSE", listen)
    with pytest.raises(TypeError, match="callable"):
        notifier.register(POSTED, "listen")
    for coroutine in (listen_on_a_loop, ListensOnALoop(), functools.partial(ListensOnALoop(), 1)):
        with pytest.raises(TypeError, match=r"plain function.*jobboard\.aio"):
            notifier.register(POSTED, coroutine)
    notifier.register(POSTED, listen)
    with pytest.raises(ValueError, match="already"):
        notifier.register(POSTED, listen)
    notifier.register(CLAIMED, listen)
    assert notifier.is_registered(POSTED, listen)
    assert not notifier.is_registered(CONSUMED, listen)
    assert notifier.listened_to
    assert notifier.deregister(POSTED, listen)
    assert not notifier.deregister(POSTED, listen)
    assert notifier.is_registered(CLAIMED, listen)
    notifier.reset()
    assert not notifier.listened_to
    for event in EVENTS:
        notifier.register(event, listen)


def test_one_thread_of_its_own() -> None:
    notifier = Notifier("busy")
    threads, go_on = set(), threading.Event()

    def listen(event: str, details: dict[str, Any]) -> None:
        threads.add(threading.current_thread())
        go_on.wait(10)

    notifier.register(ANY, listen)
    for _ in range(5):
        notifier.notify(POSTED, {})  # returns although the listener hangs
    go_on.set()
    notifier.close()
    [thread] = threads
    assert thread.name == "busy-notifier"
    assert thread.daemon
    assert not thread.is_alive()
    notifier.notify(POSTED, {})
    notifier.close()
    assert len(threads) == 2


@pytest.mark.rule("A broken listener harms no other listener and no claim.")
@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_a_broken_listener_is_logged_and_harms_nobody(
    caplog: pytest.LogCaptureFixture, kind: type[BaseException]
) -> None:
    notifier = Notifier()
    heard: list[Any] = []

    def broken(*args: Any) -> None:
        raise kind("a bug")

    notifier.register(POSTED, broken)
    notifier.register(CLAIMED, print, details_filter=broken)
    notifier.register(ANY, lambda event, details: heard.append((event, details)))
    with caplog.at_level(logging.ERROR, "jobboard"):
        for event in (POSTED, CLAIMED, POSTED):
            notifier.notify(event, {})
        notifier.close()
    assert names(heard) == [POSTED, CLAIMED, POSTED]
    assert caplog.text.count(f"{kind.__name__}: a bug") == 3


def test_a_listener_may_notify_register_and_close() -> None:
    notifier = Notifier()
    heard: list[Any] = []

    def listen(event: str, details: dict[str, Any]) -> None:
        heard.append((event, details))
        if event == POSTED:
            notifier.notify(CLAIMED, {})
        else:
            notifier.deregister(ANY, listen)
            notifier.close()

    notifier.register(ANY, listen)
    notifier.notify(POSTED, {})
    eventually(lambda: names(heard) == [POSTED, CLAIMED], 10)
    notifier.notify(POSTED, {})
    notifier.close()
    assert names(heard) == [POSTED, CLAIMED]
