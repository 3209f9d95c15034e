"""``jobboard web``: the page of a board for people."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from jobboard.cli.common import BoardOptions, cipher_option, command
from jobboard.cli.output import say, warn
from jobboard.exceptions import ConnectionFailure, MissingDriver


@command(
    "jobboard web",
    "jobboard web --port 9000 --look-only",
    "jobboard web --host 0.0.0.0 --password-file /run/secrets/page --act",
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", default=8080, show_default=True, type=click.IntRange(0, 65535), help="0 for any free port.")
@click.option(
    "--password-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Ask for the password in this file, with any user name.",
)
@click.option("--act/--look-only", default=None, help="Let visitors act.  [default: on loopback only]")
@click.option("--prefix", default="", metavar="PATH", help="The path that a proxy puts before this page's addresses.")
@click.option(
    "--origin", "origins", multiple=True, metavar="URL", help="The address of this page at a proxy. May be repeated."
)
@click.option(
    "--also", "more", multiple=True, metavar="NAME", help="Show this board of the same backend, too. May be repeated."
)
@cipher_option
def web(
    settings: BoardOptions,
    host: str,
    port: int,
    password_file: Path | None,
    act: bool | None,
    prefix: str,
    origins: tuple[str, ...],
    more: tuple[str, ...],
    cipher: object,
) -> None:
    """Show the work on a board in a browser, until Ctrl-C.

    The page has the jobs, the trash by causes, outcomes, schedules, limits and conductors. Its forms restore, purge,
    cancel, stop and release jobs, and pause names. On 127.0.0.1 everybody on this machine may act. Any other address
    needs a password, and lets visitors only look, unless --act is given.
    """
    try:
        import uvicorn

        from jobboard.web import app
        from jobboard.web.guard import is_loopback, standalone
        from jobboard.web.visits import PATIENCE
    except (MissingDriver, ModuleNotFoundError) as error:
        raise click.UsageError(f"{error}: pip install '.[web]' in a clone of jobboard") from None
    is_local = is_loopback(host) and not origins
    if not is_local and password_file is None:
        where = host if not is_loopback(host) else ", ".join(origins)
        raise click.UsageError(f"anybody who reaches {where} could see all jobs: give --password-file")
    password = None if password_file is None else password_file.read_text().strip()
    if password == "":
        raise click.UsageError(f"{password_file} is empty")
    names = [settings.board_name, *more]
    options = {"retry_for": PATIENCE, "auto_setup": False, "cipher": cipher}
    boards = [BoardOptions(settings.given, name).fetch(**options) for name in names]
    may_act = is_local if act is None else act
    page = app(boards, authorize=standalone("act" if may_act else "look", password), origins=origins)
    if not is_loopback(host):
        warn("the password and all pages cross the network unencrypted: put a proxy with https before this page")
    server = uvicorn.Server(
        uvicorn.Config(
            page,
            host=host,
            port=port,
            root_path=prefix.rstrip("/"),
            log_level="warning",
            server_header=False,
        )
    )
    with contextlib.ExitStack() as stack:
        for board in boards:
            stack.callback(board.close)
            # A board that is away may come back. Tables that are missing don't come by themselves.
            with contextlib.suppress(ConnectionFailure):
                board.connect()
        sock = server.config.bind_socket()
        # Before its address is told: visitors are in line from now on.
        sock.listen()
        shown = f"[{host}]" if ":" in host else host
        say(f"http://{shown}:{sock.getsockname()[1]}{prefix.rstrip('/')}/  Ctrl-C ends it.")
        server.run(sockets=[sock])
