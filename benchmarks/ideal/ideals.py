"""The *ideal*: the shortest hand-written code that posts, claims and finishes a job with the same driver.

It has no lease, no token, no stored answer and no key: a worker that is killed keeps its jobs for ever, a lost reply is
a job posted twice or held by nobody, and a batch that fails is the caller's trouble. An end is fenced by the owner's
name alone. Servers are as durable as for the others. This file is the yardstick of ``docs/proof/speed.rst``: change it
only where a shorter or faster way of doing the same shows that it was no ideal.

- Redis: one script for each step: HSET and ZADD; ZPOPMIN, ZADD, HSET, HGET; HGET of the owner, HDEL, ZREM, HDEL.
- SQL: a table of seven columns with one ready index. A claim is one ``UPDATE … RETURNING`` over a subselect with SKIP
  LOCKED; on MariaDB, which has none, SELECT, UPDATE and COMMIT. An end is one DELETE that names the owner.
- ZooKeeper: a create; a multi that checks the job and makes the claim; a multi that deletes both. A claimer lists the
  folder once, when it knows of no job, and reads what it claims.
"""

from __future__ import annotations

import abc
import collections
import json
import sqlite3
import time
import uuid
from typing import Any, ClassVar
from urllib.parse import urlsplit

from contender import BATCH, DETAILS, NAME, WHO, Contender, handle

Job = Any
"""What an end needs to know; the details are its last part."""


class Ideal(Contender):
    library = "ideal"

    @abc.abstractmethod
    def insert(self) -> None:
        """Post one."""

    @abc.abstractmethod
    def insert_many(self, jobs: int) -> None: ...

    @abc.abstractmethod
    def take(self, limit: int) -> list[Job]: ...

    @abc.abstractmethod
    def end(self, jobs: list[Job]) -> None: ...

    def post(self, jobs: int) -> None:
        for _ in range(jobs):
            self.insert()

    def post_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            self.insert_many(BATCH)

    def finish(self, jobs: int) -> None:
        for _ in range(jobs):
            taken = self.take(1)
            assert len(taken) == 1
            self.end(taken)

    def finish_many(self, jobs: int) -> None:
        for _ in range(0, jobs, BATCH):
            taken = self.take(BATCH)
            assert len(taken) == BATCH
            self.end(taken)

    def conduct(self, jobs: int, setting: int) -> None:
        done = 0
        while done < jobs:
            taken = self.take(setting)
            for job in taken:
                handle(job[-1])
            self.end(taken)
            done += len(taken)


class IdealSQL(Ideal):
    """What all databases have in common: the same table, and payloads of JSON text."""

    table: ClassVar[str]

    insertion = "INSERT INTO ideal (queue, name, priority, payload) VALUES (%s, %s, %s, %s)"

    def row(self) -> tuple[str, str, int, str]:
        return "bench", NAME, 100, json.dumps(DETAILS, separators=(",", ":"))

    def rows(self, jobs: int) -> tuple[str, str, int, str]:
        """One text for all: to write each into the request costs drivers several times what it costs to split it."""
        return "bench", NAME, 100, json.dumps([DETAILS for _ in range(jobs)], separators=(",", ":"))


class IdealSQLite(IdealSQL):
    insertion = "INSERT INTO ideal (queue, name, priority, payload) VALUES (?, ?, ?, ?)"
    insertion_of_many = "INSERT INTO ideal (queue, name, priority, payload) SELECT ?, ?, ?, value FROM json_each(?)"
    taking = """
        UPDATE ideal SET owner = ?, claimed_at = unixepoch()
        WHERE id IN (SELECT id FROM ideal WHERE queue = ? AND owner IS NULL ORDER BY priority, id LIMIT ?)
        RETURNING id, name, payload"""

    def __init__(self, uri: str) -> None:
        self.connection = sqlite3.connect(uri.removeprefix("sqlite:///"), isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("PRAGMA synchronous = FULL")
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS ideal (id INTEGER PRIMARY KEY, queue TEXT NOT NULL, name TEXT NOT NULL, "
            "priority INTEGER NOT NULL, payload TEXT NOT NULL, owner TEXT, claimed_at INTEGER)"
        )
        self.connection.execute(
            "CREATE INDEX IF NOT EXISTS ideal_ready ON ideal (queue, priority, id) WHERE owner IS NULL"
        )

    def close(self) -> None:
        self.connection.close()

    def insert(self) -> None:
        self.connection.execute(self.insertion, self.row())

    def insert_many(self, jobs: int) -> None:
        self.connection.execute(self.insertion_of_many, self.rows(jobs))

    def take(self, limit: int) -> list[Job]:
        rows = self.connection.execute(self.taking, (WHO, "bench", limit)).fetchall()
        return [(row[0], json.loads(row[2])) for row in rows]

    def end(self, jobs: list[Job]) -> None:
        marks = ", ".join("?" * len(jobs))
        gone = f"DELETE FROM ideal WHERE id IN ({marks}) AND owner = ?"  # noqa: S608
        assert self.connection.execute(gone, (*(job[0] for job in jobs), WHO)).rowcount == len(jobs)


class IdealPostgreSQL(IdealSQL):
    # ANY (ARRAY (…)): with IN (…) some plans take more than the limit, and most take longer.
    taking = """
        UPDATE ideal SET owner = %s, claimed_at = now()
        WHERE id = ANY (ARRAY (SELECT id FROM ideal WHERE queue = %s AND owner IS NULL
                               ORDER BY priority, id LIMIT {} FOR UPDATE SKIP LOCKED))
        RETURNING id, name, payload"""
    insertion_of_many = (
        "INSERT INTO ideal (queue, name, priority, payload) SELECT %s, %s, %s, json_array_elements(%s::json)"
    )

    def __init__(self, uri: str) -> None:
        import psycopg

        self.connection = psycopg.connect(uri, autocommit=True)
        self.cursor = self.connection.cursor()
        self.cursor.execute(
            "CREATE TABLE IF NOT EXISTS ideal (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL,"
            " name text NOT NULL, priority int NOT NULL, payload text NOT NULL, owner text, claimed_at timestamptz)"
        )
        self.cursor.execute("CREATE INDEX IF NOT EXISTS ideal_ready ON ideal (queue, priority, id) WHERE owner IS NULL")

    def close(self) -> None:
        self.connection.close()

    def insert(self) -> None:
        self.cursor.execute(self.insertion, self.row())

    def insert_many(self, jobs: int) -> None:
        self.cursor.execute(self.insertion_of_many, self.rows(jobs))

    def take(self, limit: int) -> list[Job]:
        # Written out: of a limit that it does not know, the planner expects the worst.
        self.cursor.execute(self.taking.format(int(limit)), (WHO, "bench"))
        return [(row[0], json.loads(row[2])) for row in self.cursor.fetchall()]

    def end(self, jobs: list[Job]) -> None:
        if len(jobs) == 1:
            self.cursor.execute("DELETE FROM ideal WHERE id = %s AND owner = %s", (jobs[0][0], WHO))
        else:
            ids = [job[0] for job in jobs]
            self.cursor.execute("DELETE FROM ideal WHERE id = ANY (%s) AND owner = %s", (ids, WHO))
        assert self.cursor.rowcount == len(jobs)


class IdealMariaDB(IdealSQL):
    """Two connections, so that what is one statement commits by itself."""

    insertion_of_many = """
        INSERT INTO ideal (queue, name, priority, payload)
        SELECT %s, %s, %s, posted.payload FROM JSON_TABLE(%s, '$[*]' COLUMNS (payload JSON PATH '$')) AS posted"""
    picking = """
        SELECT id, name, payload FROM ideal WHERE queue = %s AND owner IS NULL
        ORDER BY priority, id LIMIT %s FOR UPDATE SKIP LOCKED"""

    def __init__(self, uri: str) -> None:
        self.plain = connect_mariadb(uri, autocommit=True)
        self.claiming = connect_mariadb(uri, autocommit=False)
        with self.plain.cursor() as cursor:
            cursor.execute(
                "CREATE TABLE IF NOT EXISTS ideal (id BIGINT AUTO_INCREMENT PRIMARY KEY, queue VARCHAR(60) NOT NULL, "
                "name VARCHAR(60) NOT NULL, priority INT NOT NULL, payload TEXT NOT NULL, owner VARCHAR(60), "
                "claimed_at DATETIME, KEY ideal_ready (queue, owner, priority, id))"
            )
        self.cursor = self.plain.cursor()
        self.claimer = self.claiming.cursor()
        # Otherwise gaps are locked.
        self.claimer.execute("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")

    def close(self) -> None:
        self.plain.close()
        self.claiming.close()

    def insert(self) -> None:
        self.cursor.execute(self.insertion, self.row())

    def insert_many(self, jobs: int) -> None:
        self.cursor.execute(self.insertion_of_many, self.rows(jobs))

    def take(self, limit: int) -> list[Job]:
        self.claimer.execute(self.picking, ("bench", limit))
        rows = self.claimer.fetchall()
        ids = [row[0] for row in rows]
        self.claimer.execute("UPDATE ideal SET owner = %s, claimed_at = now() WHERE id IN %s", (WHO, ids))
        self.claiming.commit()
        return [(row[0], json.loads(row[2])) for row in rows]

    def end(self, jobs: list[Job]) -> None:
        ids = [job[0] for job in jobs]
        assert self.cursor.execute("DELETE FROM ideal WHERE id IN %s AND owner = %s", (ids, WHO)) == len(jobs)


def connect_mariadb(uri: str, autocommit: bool) -> Any:
    import pymysql

    parts = urlsplit(uri)
    return pymysql.connect(
        host=parts.hostname,
        port=parts.port or 3306,
        user=parts.username,
        database=parts.path.strip("/"),
        autocommit=autocommit,
        charset="utf8mb4",
    )


class IdealRedis(Ideal):
    """``jobs``: payloads; ``ready``: who is next; ``claimed``: since when; ``owner``: by whom."""

    POST = """
        for i = 1, #ARGV, 3 do
            redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 2])
            redis.call('ZADD', KEYS[2], ARGV[i + 1], ARGV[i])
        end"""
    CLAIM = """
        local taken = redis.call('ZPOPMIN', KEYS[2], ARGV[2])
        local jobs = {}
        for i = 1, #taken, 2 do
            redis.call('ZADD', KEYS[3], ARGV[3], taken[i])
            redis.call('HSET', KEYS[4], taken[i], ARGV[1])
            jobs[i] = taken[i]
            jobs[i + 1] = redis.call('HGET', KEYS[1], taken[i])
        end
        return jobs"""
    CONSUME = """
        local done = 0
        for i = 2, #ARGV do
            if redis.call('HGET', KEYS[4], ARGV[i]) == ARGV[1] then
                redis.call('HDEL', KEYS[4], ARGV[i])
                redis.call('ZREM', KEYS[3], ARGV[i])
                redis.call('HDEL', KEYS[1], ARGV[i])
                done = done + 1
            end
        end
        return done"""

    def __init__(self, uri: str) -> None:
        import msgpack
        import redis

        self.pack, self.unpack = msgpack.packb, msgpack.unpackb
        self.client = redis.Redis.from_url(uri)
        self.keys = [f"ideal:{name}" for name in ("jobs", "ready", "claimed", "owner")]
        self.scripts = [self.client.script_load(script) for script in (self.POST, self.CLAIM, self.CONSUME)]
        self.posted = 0

    def close(self) -> None:
        self.client.close()

    def draft(self) -> tuple[str, int, bytes]:
        self.posted += 1
        return uuid.uuid4().hex, (100 << 45) + self.posted, self.pack(DETAILS)

    def run(self, script: int, *arguments: Any) -> Any:
        return self.client.evalsha(self.scripts[script], 4, *self.keys, *arguments)

    def insert(self) -> None:
        self.run(0, *self.draft())

    def insert_many(self, jobs: int) -> None:
        self.run(0, *(part for _ in range(jobs) for part in self.draft()))

    def take(self, limit: int) -> list[Job]:
        answer = self.run(1, WHO, limit, time.time_ns() // 1000)
        return [(answer[i], self.unpack(answer[i + 1])) for i in range(0, len(answer), 2)]

    def end(self, jobs: list[Job]) -> None:
        assert self.run(2, WHO, *(job[0] for job in jobs)) == len(jobs)


class IdealZooKeeper(Ideal):
    def __init__(self, uri: str) -> None:
        import msgpack
        from kazoo.client import KazooClient

        self.pack, self.unpack = msgpack.packb, msgpack.unpackb
        self.client = KazooClient(uri.removeprefix("zookeeper://"))
        self.client.start()
        self.client.ensure_path("/ideal/jobs")
        self.client.ensure_path("/ideal/claims")
        self.known: collections.deque[str] = collections.deque()

    def close(self) -> None:
        self.client.stop()
        self.client.close()

    def insert(self) -> None:
        self.client.create("/ideal/jobs/100-", self.pack(DETAILS), sequence=True)

    def insert_many(self, jobs: int) -> None:
        multi = self.client.transaction()
        for _ in range(jobs):
            multi.create("/ideal/jobs/100-", self.pack(DETAILS), sequence=True)
        self.committed(multi)

    def committed(self, multi: Any) -> None:
        for result in multi.commit():
            if isinstance(result, Exception):
                raise result

    def take(self, limit: int) -> list[Job]:
        if len(self.known) < limit:
            self.known = collections.deque(sorted(self.client.get_children("/ideal/jobs")))
        names = [self.known.popleft() for _ in range(min(limit, len(self.known)))]
        read = [self.client.get_async(f"/ideal/jobs/{name}") for name in names]
        multi = self.client.transaction()
        for name in names:
            multi.check(f"/ideal/jobs/{name}", 0)
            multi.create(f"/ideal/claims/{name}", WHO.encode(), ephemeral=True)
        self.committed(multi)
        return [(name, self.unpack(each.get()[0])) for name, each in zip(names, read, strict=True)]

    def end(self, jobs: list[Job]) -> None:
        multi = self.client.transaction()
        for name, _ in jobs:
            multi.delete(f"/ideal/claims/{name}")
            multi.delete(f"/ideal/jobs/{name}")
        self.committed(multi)


IDEALS: dict[str, type[Ideal]] = {
    "sqlite": IdealSQLite,
    "postgresql": IdealPostgreSQL,
    "mariadb": IdealMariaDB,
    "redis": IdealRedis,
    "zookeeper": IdealZooKeeper,
}
