"""The ASGI application: its addresses, and the way of each request through the guard to a view."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast
from urllib.parse import parse_qs

try:
    import jinja2  # noqa: F401 - of the pages
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.exceptions import HTTPException
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route
except ModuleNotFoundError as error:
    from jobboard.exceptions import MissingDriver

    raise MissingDriver(f"the page needs {error.name}: pip install '.[web]' in a clone of jobboard", error) from error

from jobboard import logs
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobBoardError, NotFound
from jobboard.reading import PARTS, BoardLook, BoardReader
from jobboard.web import guard, views
from jobboard.web.visits import HERE, SAID, STATIC, Authorize, Conf, Site, View, Visit

LOG = logs.Log(__name__)

FORM_BYTES, FORM_FIELDS = 256 * 1024, 2_000
"""The largest form."""

BUSY = 20
"""The most pages at work at once: half of the threads. The others are left to live figures, and to the service that
mounts the page."""

SHOWN = tuple(part for part in PARTS if part not in ("jobs", "trashed"))
"""The parts of a look that pages show."""

HEAD = ("stats", "rules", "entities", "claims")
"""The parts for which a page waits, for a moment."""

YOUNG, MOMENT = 15.0, 0.3
"""The greatest age in seconds of a look that is shown without a wait for a younger one, and the longest such wait."""


def app(
    boards: JobBoard | tuple[str, Conf] | Iterable[JobBoard | tuple[str, Conf]],
    *,
    authorize: Authorize,
    details: Callable[[Any, Any], Any] = lambda job, value: value,
    origins: Iterable[str] = (),
) -> Starlette:
    """Return the page of these boards as an ASGI application, to be mounted under any path.

    :param boards: a board, or several: each a :class:`~jobboard.board.JobBoard`, or a name and a configuration as for
        :func:`jobboard.fetch`. A board is connected when it is first looked at.
    :param authorize: a function of each request, which may be a coroutine function. It returns None to refuse the
        request, ``"look"``, ``"act"``, ``("act", "admin")`` to name the visitor in logs and reasons, or a response,
        such as a redirect to a login.
    :param details: a function of a job and of its details, result or checkpoint. It returns the value that the page
        shows.
    :param origins: further addresses of this page, as ``https://jobs.example.org``, for a proxy that changes Host.
    :raises ValueError, TypeError: there is no board, or something else in its place.
    """
    is_one = isinstance(boards, JobBoard) or (isinstance(boards, tuple) and isinstance(boards[0], str))
    listed = cast("Iterable[JobBoard | tuple[str, Conf]]", [boards] if is_one else boards)
    site = Site(listed, authorize, details, origins)
    routes = [
        Route(path, _endpoint(site, view, method), methods=[method])
        for method, table in (("GET", views.PAGES), ("POST", views.FORMS))
        for path, view in table.items()
    ]
    handlers: Any = {HTTPException: _refused, Exception: _failed}
    return Starlette(routes=[Route("/static/{version}/{name}", _static), *routes], exception_handlers=handlers)


def _refused(request: Request, error: HTTPException) -> Response:
    return guard.plain(f"{error.detail}.", error.status_code)


def _failed(request: Request, error: Exception) -> Response:
    # The server logs the error.
    return guard.plain("The page has failed. The log of its server has the reason.", 500)


def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in STATIC:
        return guard.plain("There is no such file.", 404)
    headers = {**guard.HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
    return Response((HERE / "static" / name).read_bytes(), 200, headers, STATIC[name])


def _endpoint(site: Site, view: View, method: str) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        form: dict[str, list[str]] = {}
        if method == "POST":
            body = bytearray()
            async for chunk in request.stream():
                body += chunk
                if len(body) > FORM_BYTES:
                    return guard.plain("The form is too large.", 413)
            try:
                form = parse_qs(body.decode(), keep_blank_values=True, max_num_fields=FORM_FIELDS)
            except ValueError:
                return guard.plain("This is no form.", 400)
        visit = Visit(site, request, form)
        answer = await _refusal(visit, method)
        # Live figures wait for no board.
        waits = view is not views.state
        if answer is None and waits and site.busy >= BUSY:
            answer = guard.plain("Too many pages wait for the board. Reload this one in a moment.", 503)
        elif answer is None:
            site.busy += waits
            try:
                answer = await run_in_threadpool(_answer, visit, view)
            finally:
                site.busy -= waits
            _set_cookies(visit, answer)
        answer.headers.update(guard.HEADERS)
        return answer

    return endpoint


async def _refusal(visit: Visit, method: str) -> Response | None:
    """Return the response to a request that must not reach its view. Note the rights of its visitor."""
    site, request = visit.site, visit.request
    if inspect.iscoroutinefunction(site.authorize):
        allowed = await site.authorize(request)
    else:
        # It may ask a database.
        allowed = await run_in_threadpool(site.authorize, request)
        allowed = await allowed if inspect.isawaitable(allowed) else allowed
    if isinstance(allowed, Response):
        return allowed
    level, who = allowed if isinstance(allowed, tuple) else (allowed, visit.who)
    if level not in ("look", "act"):
        return guard.plain("You may not see this page.", 403)
    visit.may_act, visit.who = level == "act", str(who)
    if visit.slug and visit.slug not in site.readers:
        return guard.plain("There is no such board.", 404)
    if method == "POST":
        reason = guard.refusal(request, visit.form, site.origins) if visit.may_act else "you may look, and not act"
        if reason is not None:
            return guard.plain(f"Nothing was changed: {reason}.", 403)
    return None


def _answer(visit: Visit, view: View) -> Response:
    try:
        if visit.slug:
            visit.look = _look(visit.reader)
        return view(visit)
    except NotFound as error:
        return visit.render("problem.html", 404, title="Not there", why=str(error))
    except ConnectionFailure as error:
        return visit.render("away.html", 503, why=str(error))
    except JobBoardError as error:
        return visit.render("problem.html", 409, title="That did not work", why=str(error))
    except ValueError as error:
        return visit.render("problem.html", 400, title="That can't be read", why=str(error))


def _look(reader: BoardReader) -> BoardLook:
    """Return the last look; a younger one, where the board returns it in a moment."""
    look = reader.look(SHOWN)
    age = look.age()
    if age is None or age > YOUNG:
        try:
            reader.read(HEAD, YOUNG, MOMENT)
        except (JobBoardError, TimeoutError) as error:
            LOG.debug("the board %r could not be read in a moment: %s", reader.board.name, error)
        look = reader.look(SHOWN)
    return look


def _set_cookies(visit: Visit, answer: Response) -> None:
    path, cookies = visit.root or "/", visit.request.cookies
    if cookies.get(guard.COOKIE) != visit.seed:
        # Lax: with Strict, a link from elsewhere would come without it, and a new one would spoil open forms.
        secure = visit.request.url.scheme == "https"
        answer.set_cookie(guard.COOKIE, visit.seed, path=path, httponly=True, samesite="lax", secure=secure)
    is_page = answer.headers.get("content-type", "").startswith("text/html")
    if visit.said and is_page and SAID not in answer.headers.get("set-cookie", ""):
        answer.delete_cookie(SAID, path=path)
