"""The options of SQL boards, the URL that they make, and the SQLAlchemy engine for it."""

from __future__ import annotations

import contextlib
import math
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import URL, Engine

from jobboard.conf import Option, Settings, check_files, choice, flag, meant, port, seconds, text
from jobboard.exceptions import JobFailure, MissingDriver
from jobboard.sql.clients import check_engine, is_in_memory
from jobboard.sql.connections import deadline

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,39}")


_STEADY = (
    "SELECT set_config('plan_cache_mode', 'force_generic_plan', false), set_config('jit', 'off', false), "
    + ", ".join(
        f"set_config('enable_{way}', 'off', false)"
        for way in ("seqscan", "bitmapscan", "hashjoin", "mergejoin", "sort")
    )
    + ", set_config('lock_timeout', '{turn}s', false), "
    "set_config('idle_in_transaction_session_timeout', '{silent}s', false)"
)
"""PostgreSQL plans each statement once, by its indexes: to plan a claim takes longer than to run it, and a plan for a
small table would be kept as the table grows. No statement waits for a lock longer than a turn. The server undoes a
transaction whose client has fallen silent."""

_PLAIN = (
    "SET SESSION innodb_lock_wait_timeout = {turn}, lock_wait_timeout = {turn}, "
    "sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0, sql_big_selects = 1, "
    "sql_select_limit = 18446744073709551615 /*M!100300 , idle_transaction_timeout = {silent} */"
)
"""MariaDB and MySQL run statements as they are written, whatever the server's defaults. No statement waits longer than
a turn for a lock on a row or a table. MariaDB undoes a transaction of a silent client."""

_SETTINGS = {"postgresql": _STEADY, "mysql": _PLAIN, "mariadb": _PLAIN}


def table_name(value: Any) -> str:
    if not isinstance(value, str) or not _TABLE.fullmatch(value):
        raise ValueError("must be a plain name: a letter, then at most 39 letters, digits or underscores")
    return value


# What libpq takes in a URI, but for what would change the meaning of a board's own statements.
_OF_LIBPQ = (
    *("application_name", "channel_binding", "gssdelegation", "gssencmode", "gsslib", "hostaddr", "keepalives"),
    *("keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname", "load_balance_hosts"),
    *("max_protocol_version", "min_protocol_version", "options", "passfile", "require_auth", "requirepeer", "service"),
    *("ssl_max_protocol_version", "ssl_min_protocol_version", "sslcertmode", "sslcompression", "sslcrl", "sslcrldir"),
    *("sslnegotiation", "sslpassword", "sslsni", "target_session_attrs", "tcp_user_timeout"),
)

URI_PARTS: Mapping[str, str] = {
    "user": "user",
    "password": "password",
    "host": "host",
    "port": "port",
    "path": "database",
}

OPTIONS: Mapping[str, Option] = {
    "table": Option(table_name, "jobboard", "prefix of the tables' names"),
    "database": Option(text, None, "the database; for SQLite the path of its file"),
    "host": Option(text, None, "host of the server"),
    "port": Option(port, None, "port of the server"),
    "user": Option(text, None, "name of the user"),
    "password": Option(text, None, "the user's password", secret=True),
    "connect_timeout": Option(seconds(1, 3600), 10.0, "longest time for a connection, in seconds"),
    "synchronous": Option(choice("full", "normal"), "full", "SQLite: normal may lose the latest commits at power loss"),
    "notify": Option(flag, True, "PostgreSQL: LISTEN for posts; false behind a transaction pooler"),
    "sslmode": Option(text, None, "PostgreSQL: passed on to libpq"),
    "sslrootcert": Option(text, None, "PostgreSQL: the authority's certificate"),
    "sslcert": Option(text, None, "PostgreSQL: the client's certificate"),
    "sslkey": Option(text, None, "PostgreSQL: the client's key"),
    **{name: Option(text, None, "PostgreSQL: passed on to libpq", secret=name == "sslpassword") for name in _OF_LIBPQ},
    "ssl": Option(flag, None, "PostgreSQL: true is sslmode=require; MariaDB, MySQL: ssl_mode=required"),
    "unix_socket": Option(text, None, "MariaDB, MySQL: path of the server's socket"),
    "ssl_ca": Option(text, None, "MariaDB, MySQL: the authority's certificate; turns TLS on"),
    "ssl_cert": Option(text, None, "MariaDB, MySQL: the client's certificate"),
    "ssl_key": Option(text, None, "MariaDB, MySQL: the client's key"),
    "ssl_mode": Option(
        choice("disabled", "preferred", "required", "verify_ca", "verify_identity"),
        None,
        "MariaDB, MySQL: required turns TLS on; verify_identity, or with ssl_ca any, checks certificate and host",
    ),
    "charset": Option(choice("utf8mb4", "utf8"), None, "MariaDB, MySQL: ignored, as it is always utf8mb4"),
}

_OF_POSTGRESQL = ("sslmode", "sslrootcert", "sslcert", "sslkey", "ssl", *_OF_LIBPQ)
_OF_MYSQL = ("unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_mode", "ssl", "charset")
_OF_SERVERS = ("host", "port", "user", "password")
_OF_SOME = frozenset((*_OF_SERVERS, *_OF_POSTGRESQL, *_OF_MYSQL))
_OWN = {
    "sqlite": (),
    "postgresql": (*_OF_SERVERS, *_OF_POSTGRESQL),
    "mysql": (*_OF_SERVERS, *_OF_MYSQL),
    "mariadb": (*_OF_SERVERS, *_OF_MYSQL),
}

_DRIVERS = {"postgresql": "psycopg", "mysql": "pymysql", "mariadb": "pymysql", "sqlite": "pysqlite"}
_IN_MEMORY = "a board in SQLite's memory has one connection only; use the board 'memory' instead"
_EXTRAS = {"postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql"}


def url_of(conf: Settings) -> URL:
    """Return the URL that the options make.

    :raises MissingDriver: the driver for it is not installed.
    :raises ValueError: an option does not fit the database."""
    name = {"sql": "sqlite", "postgres": "postgresql"}.get(conf.scheme, conf.scheme)
    driver = conf.driver or _DRIVERS[name]
    _check_options(conf, name)
    _check_driver(conf, name, driver)
    database = _file_of(conf) if name == "sqlite" else conf["database"]
    url = URL.create(f"{name}+{driver}", conf["user"], conf["password"], conf["host"], conf["port"], database)
    try:
        url.get_dialect().import_dbapi()
    except ImportError as error:
        extra = None if conf.driver else _EXTRAS.get(name)
        hint = f"pip install '.[{extra}]' in a clone of jobboard" if extra else f"install the driver {driver!r}"
        raise MissingDriver(f"the driver of {name} is not installed: {hint}", error) from error
    if name == "postgresql" and driver == "psycopg":
        _check_libpq(conf)
    return url


def _file_of(conf: Settings) -> str:
    """Return the absolute path of an SQLite board's file, by the present working directory."""
    if conf["host"]:
        path = "/".join(filter(None, (conf["host"], conf["database"])))
        raise ValueError(
            f"a {conf.scheme} board has a file, and no host: write {conf.scheme}:///{path} for one in this folder, and "
            f"four slashes for an absolute path"
        )
    path = conf["database"] or "jobboard.db"
    if path == ":memory:" or "mode=memory" in path:
        raise ValueError(_IN_MEMORY)
    if path.startswith("file:"):
        raise ValueError("database must be the path of a file; an SQLite URI is not taken")
    return str(Path(path).absolute())


def _check_options(conf: Settings, name: str) -> None:
    """:raises ValueError: an option is another database's, or options don't go together."""
    # A host gets a better error, which shows how to write a file.
    own = (*_OWN[name], "host") if name == "sqlite" else _OWN[name]
    for option in sorted(_OF_SOME.difference(own)):
        if conf[option] is not None:
            others = [each for each in OPTIONS if each in _OWN[name] or each not in _OF_SOME]
            raise ValueError(f"a {conf.scheme} board has no option {option!r}; {meant(option, others)}")
    if conf["unix_socket"] is not None and (conf["port"] is not None or conf["host"] not in (None, "localhost")):
        raise ValueError("option unix_socket: it takes the place of host and port; leave them out")
    _check_tls_of_mysql(conf)


def _check_driver(conf: Settings, name: str, driver: str) -> None:
    """:raises ValueError: the driver is unknown or async, or does not know an option."""
    try:
        is_async = URL.create(f"{name}+{driver}").get_dialect().is_async
    except sa.exc.NoSuchModuleError as error:
        raise ValueError(f"SQLAlchemy knows no driver {driver!r} for {name}") from error
    if is_async:
        scheme = name if name == "sqlite" else f"{name}+{_DRIVERS[name]}"
        raise ValueError(
            f"{driver} is an async driver: write {scheme}:// instead, as verbs call their driver in threads, under "
            "jobboard.aio, too"
        )
    for option in _passed_on(conf):
        if not driver.startswith(_DRIVERS[name]):
            raise ValueError(
                f"option {option}: is known of {_DRIVERS[name]} alone; for {driver} make an SQLAlchemy Engine with its "
                "own arguments, and pass that as client="
            )


def _passed_on(conf: Settings) -> list[str]:
    """Return the given options that only the driver understands."""
    return [option for option in dict.fromkeys((*_OF_POSTGRESQL, *_OF_MYSQL)) if conf[option] is not None]


def make_engine(url: URL, conf: Settings) -> Engine:
    """Return a new engine. :class:`~jobboard.sql.connections.Links` keeps its connections, so it has no pool."""
    arguments = _connect_args(url, conf)
    engine = sa.create_engine(url, poolclass=sa.NullPool, connect_args=arguments)
    # Behind a transaction pooler a setting would meet the statements of others.
    settings = _SETTINGS.get(url.get_backend_name()) if conf["notify"] else None
    silent = math.ceil(deadline(conf["retry_for"], conf["claim_ttl"]))

    def set_up(raw: Any, record: Any) -> None:
        if "read_timeout" in arguments:
            if "ssl" in arguments and not isinstance(raw._sock, ssl.SSLSocket):
                raise raw.OperationalError(3159, "the server has no TLS, which is asked for")
            # It was for the greeting. Requests have a watchdog, and a setup may wait longer.
            raw._read_timeout = None
        if settings is not None:
            cursor = raw.cursor()
            cursor.execute(settings.format(turn=silent // 2, silent=silent))
            cursor.close()
            raw.commit()

    # SQLAlchemy asks about the server next, and ends a transaction.
    sa.event.listen(engine, "connect", set_up, insert=True)
    return engine


def _connect_args(url: URL, conf: Settings) -> dict[str, Any]:
    """Return the arguments of the driver's ``connect`` beside those of the URL."""
    name, driver = url.get_backend_name(), url.get_driver_name()
    # An attempt to connect does not outlast the time for which it is repeated by much.
    limit = max(2, round(min(conf["connect_timeout"], conf["retry_for"])))
    if name == "sqlite":
        # Calls of one thread after another use a connection.
        return {"check_same_thread": False, "timeout": conf["retry_for"]}
    if driver.startswith("psycopg"):
        arguments = {
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 30000,
            "application_name": "jobboard",
            "connect_timeout": limit,
            "client_encoding": "utf8",
            **_of_libpq(conf),
        }
        if driver == "psycopg" and not conf["notify"]:
            # Behind a transaction pooler the next statement may meet another server process.
            arguments["prepare_threshold"] = None
        return arguments
    if driver != "pymysql":
        return {}
    arguments = {"charset": "utf8mb4", "connect_timeout": limit, "read_timeout": limit}
    if url.password is not None:
        # As MariaDB's own clients send it, where PyMySQL would send a str as latin-1.
        arguments["password"] = url.password.encode()
    if conf["unix_socket"] is not None:
        arguments["unix_socket"] = conf["unix_socket"]
    if tls := _tls_of_mysql(conf):
        arguments["ssl"] = tls
    if conf["ssl_mode"] == "disabled":
        # Later versions of PyMySQL use TLS by themselves where the server has it.
        arguments["ssl_disabled"] = True
    return arguments


def _of_libpq(conf: Settings) -> dict[str, Any]:
    """Return the arguments of libpq that are no parts of the URL."""
    arguments = {option: conf[option] for option in _passed_on(conf)}
    if arguments.pop("ssl", False):
        arguments.setdefault("sslmode", "require")
    if "," in (conf["host"] or ""):
        # libpq takes the hosts' own ports as a second list.
        split = [each.strip().rpartition(":") for each in conf["host"].split(",")]
        alone = [not (colon and number.isdigit()) for _, colon, number in split]
        arguments["host"] = ",".join(
            "".join(each) if bare else each[0].strip("[]") for each, bare in zip(split, alone, strict=True)
        )
        arguments["port"] = ",".join(
            str(conf["port"] or 5432) if bare else each[2] for each, bare in zip(split, alone, strict=True)
        )
    return arguments


def _check_libpq(conf: Settings) -> None:
    """:raises ValueError: the libpq that is installed does not know an option."""
    from psycopg import ProgrammingError
    from psycopg.conninfo import make_conninfo

    for option, value in _of_libpq(conf).items():
        try:
            make_conninfo(**{option: value})
        except ProgrammingError:
            raise ValueError(f"option {option}: the libpq that is installed does not know it") from None


def _ssl_mode(conf: Settings) -> str | None:
    return conf["ssl_mode"] or ("required" if conf["ssl"] else None)


def _check_tls_of_mysql(conf: Settings) -> None:
    """:raises ValueError: options that don't go together."""
    mode = _ssl_mode(conf)
    if mode == "disabled" and any(conf[f"ssl_{part}"] is not None for part in ("ca", "cert", "key")):
        raise ValueError("option ssl_mode='disabled': leave out ssl_ca, ssl_cert and ssl_key, or have it be 'required'")
    if mode in ("verify_ca", "verify_identity") and conf["ssl_ca"] is None:
        raise ValueError(f"option ssl_mode={mode!r}: set ssl_ca, the file of the authority's certificate, too")


def _tls_of_mysql(conf: Settings) -> dict[str, Any]:
    """Return PyMySQL's TLS settings; empty for no TLS. PyMySQL checks the certificate if it has the authority's."""
    tls = {part: conf[f"ssl_{part}"] for part in ("ca", "cert", "key") if conf[f"ssl_{part}"] is not None}
    if _ssl_mode(conf) == "verify_ca" or (_ssl_mode(conf) == "required" and "ca" not in tls):
        tls["check_hostname"] = False
    return tls


def check_there(url: URL, conf: Settings, create: bool) -> None:
    """Check that the files of TLS exist, and the file of an SQLite board: SQLite would make one that others may read.

    :param create: make the file, for its owner alone.
    :raises JobFailure: the file does not exist."""
    check_files(conf, "ssl_ca", "ssl_cert", "ssl_key")
    if url.get_backend_name() != "sqlite":
        return
    file = Path(str(url.database))
    if create:
        # SQLite gives the files beside it the same rights. Where none can be made, it says so itself.
        with contextlib.suppress(OSError):
            os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        return
    # Where the user may not enter a folder, the connection fails, and says so.
    with contextlib.suppress(PermissionError):
        if not file.parent.is_dir():
            raise JobFailure(
                f"there is no folder {str(file.parent)!r} for the database {file.name!r}: create the folder first"
            )
        if not file.exists():
            raise JobFailure(f"there is no database {url.database}; `jobboard setup` creates it")


def check_client(engine: Engine, conf: Settings) -> None:
    """:raises ValueError: a board can't use this engine, or options say what the engine says already."""
    if engine.dialect.name not in _DRIVERS:
        raise ValueError(
            f"client= is an engine for {engine.dialect.name}: SQL boards work on SQLite, PostgreSQL, MariaDB and "
            "MySQL. On other databases only jobboard.orm and jobboard.taskloop work"
        )
    if is_in_memory(engine):
        raise ValueError(_IN_MEMORY)
    check_engine(engine, "a board")
    given = [option for option in (*_OF_SERVERS, "database") if conf[option] is not None] + _passed_on(conf)
    if given:
        raise ValueError(f"client= is connected already: leave out {', '.join(given)}")
