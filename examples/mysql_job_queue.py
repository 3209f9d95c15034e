"""A job queue in a table of one's own: generators insert rows, consumers acquire them by the batch and delete them.

    python examples/mysql_job_queue.py setup-tables --uri mysql+pymysql://root@localhost/queue
    python examples/mysql_job_queue.py start-processing --uri mysql+pymysql://root@localhost/queue

It runs until Ctrl-C, until ``--jobs`` of them are done, or until the database fails; on MySQL, MariaDB, PostgreSQL and
SQLite alike.
"""

import itertools
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import click
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from jobboard.exceptions import ClaimLost
from jobboard.orm import Claimable

GENERATORS = 2
CONSUMERS = 10
BATCH = 500
"""How many jobs a consumer takes at once. Ten consumers that look for the first jobs at the same moment are in each
other's way: few large batches keep up with the generators where many small ones fall behind."""


class Base(DeclarativeBase):
    pass


class Job(Claimable, Base):
    __tablename__ = "queue"

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(20))


class Stopwatch:
    """Counts what is done, and tells when it is enough."""

    def __init__(self, jobs: int | None) -> None:
        self.numbers = iter(range(jobs) if jobs is not None else itertools.count())
        self.left = jobs
        self.stop = threading.Event()
        self.lock = threading.Lock()

    def done(self, count: int) -> None:
        with self.lock:
            if self.left is not None:
                self.left -= count
                if self.left <= 0:
                    self.stop.set()


def generate(engine: sa.Engine, watch: Stopwatch) -> None:
    while not watch.stop.is_set():
        with watch.lock:
            numbers = list(itertools.islice(watch.numbers, 50))
        if not numbers:
            return
        with Session(engine) as session:
            session.add_all([Job(kind=("mail", "picture")[number % 2]) for number in numbers])
            session.commit()
        time.sleep(0.01)


def consume(engine: sa.Engine, watch: Stopwatch, who: str) -> None:
    # The whole queue. A consumer that crashes leaves nothing behind: after the timeout the next one gets its rows.
    while not watch.stop.is_set():
        wanted = Job.kind.in_(["mail", "picture"])
        try:
            with Job.acquiring(engine, who, where=wanted, order_by=Job.id, limit=BATCH, timeout=60) as jobs:
                for job in jobs:
                    jobs.session.delete(job)  # refused, if another has taken it over
        except ClaimLost as error:
            # None of the batch is deleted: who has the lost one deletes that, and the others are acquired again.
            click.echo(f"{who}: {error}", err=True)
            continue
        watch.done(len(jobs))
        click.echo(f"{who}: {len(jobs)} jobs")
        if not jobs:
            watch.stop.wait(0.05)


@click.group()
def main() -> None:
    pass


uri_option = click.option("--uri", required=True, help="where the tables are, as SQLAlchemy has it")


def engine_of_command(uri: str, **options: int) -> sa.Engine:
    """Return an engine whose connections are closed when the command ends."""
    engine = sa.create_engine(uri, **options)
    click.get_current_context().call_on_close(engine.dispose)
    return engine


@main.command()
@uri_option
def setup_tables(uri: str) -> None:
    """Create the tables that are missing."""
    Base.metadata.create_all(engine_of_command(uri))


@main.command()
@uri_option
@click.option("--jobs", type=int, help="end when so many are done")
def start_processing(uri: str, jobs: int | None) -> None:
    """Generate and consume."""
    engine = engine_of_command(uri, pool_size=GENERATORS + 2 * CONSUMERS)
    watch = Stopwatch(jobs)
    with ThreadPoolExecutor(GENERATORS + CONSUMERS) as pool:
        try:
            running = [pool.submit(generate, engine, watch) for _ in range(GENERATORS)]
            running += [pool.submit(consume, engine, watch, f"consumer {number}") for number in range(CONSUMERS)]
            for ended in as_completed(running):
                ended.result()
        except sa.exc.SQLAlchemyError as error:
            raise click.ClickException(str(error)) from error
        finally:
            watch.stop.set()


if __name__ == "__main__":
    main()
