"""The runner of pages: it finds each fault of a page, and its line."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import PageError, matches, parse
from tests.docs.page import replaced
from tests.docs.test_pages import run

Complaint = Callable[..., str]
TITLE = "A page\n======\n\n"


@pytest.fixture
def complaint(tmp_path: Path) -> Complaint:
    """``complaint(text)``: what the run of a page says, or nothing."""

    def of(text: str, limit: float = 30, servers: dict[str, str] | None = None) -> str:
        page = tmp_path / "page.rst"
        page.write_text(TITLE + textwrap.dedent(text).strip() + "\n")
        return run(page, servers or {}, limit).replace(str(page), "page")

    return of


@pytest.mark.backends("sqlite")
def test_a_page_in_which_all_is_true(complaint: Complaint) -> None:
    found = complaint("""
        .. code-block:: python
            :caption: tasks.py

            def resize(job):
                print("resizing", job.details["path"])

        .. tab-set::

            .. tab-item:: SQLite

                .. code-block:: python

                    import jobboard
                    import tasks

                    with jobboard.backend("pictures", "sqlite:///jobs.db") as board:
                        board.post("resize", details={"path": "a.jpg"})
                        print(board.job_count, "job of", board.name)

                .. code-block:: text
                    :class: output

                    1 job of ...

        .. code-block:: console

            $ export JOBBOARD_URL=sqlite:///jobs.db \\
            > JOBBOARD_NAME=pictures
            $ jobboard stats
            board 'pictures'
            ...
            unclaimed 1
            ...
            $ jobboard show nothing
            jobboard: ...
            [exit 1]

        .. stop: idle
        .. code-block:: console

            $ jobboard work tasks:resize
            ... works on the board 'pictures' at sqlite:///jobs.db: ...
            resizing a.jpg
            ...
            dispatched 1, consumed 1, abandoned 0, trashed 0, lost 0

        .. invisible-code-block: python

            with jobboard.backend("pictures", "sqlite:///jobs.db") as board:
                assert board.job_count == 0

        .. code-block:: python

            board.post("")

        .. code-block:: text
            :class: output

            ...ConnectionFailure: board 'pictures' ... is not connected...

        .. code-block:: shell

            echo $JOBBOARD_NAME > name
            test "$(cat name)" = pictures

        .. code-block:: sql
            :class: run

            CREATE TABLE pictures (path TEXT);

        .. code-block:: json
            :caption: settings.json

            {"board": "sqlite:///jobs.db"}

        .. code-block:: console

            $ cat settings.json
            {"board": "sqlite:///jobs.db"}
            $ true &
            $ wait
            $ sleep 60 &
            $ true &
            $ wait $!

        .. code-block:: python
            :class: other

            from celery import Celery

        .. code-block:: console
            :class: other

            $ celery --app tasks worker

        .. code-block:: diff

            -import celery
            +import jobboard
    """)
    assert found == "", found


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("page", "said"),
    [
        (
            """
            .. code-block:: python

                print("one")
                print("two")

            .. code-block:: text
                :class: output

                one
                three
            """,
            "page:9: the output differs\nexpected:\n    one\n    three\ngot:\n    one\n    two",
        ),
        (
            """
            .. code-block:: console

                $ true
                $ echo one
                two
            """,
            "page:7: the output differs\n    $ echo one\nexpected:\n    two\ngot:\n    one",
        ),
        (
            """
            .. code-block:: python

                a = 1

                1 / 0
            """,
            "page:8: the block raises\n    Traceback",
        ),
        (
            """
            .. code-block:: python

                1 / 0

            .. code-block:: text
                :class: output

                ValueError: ...
            """,
            "page:8: the output differs",
        ),
        (
            """
            .. invisible-code-block: python

                assert False
            """,
            "page:6: the block raises",
        ),
        (
            """
            .. code-block:: console

                $ false
            """,
            "page:6: the exit status is 1 in place of 0",
        ),
        (
            """
            .. code-block:: console

                $ true
                [exit 1]
            """,
            "page:6: the exit status is 0 in place of 1",
        ),
        (
            """
            .. code-block:: console

                $ false &

            .. code-block:: console

                $ sleep 0.3
            """,
            "page:6: the command has ended with the exit status 1",
        ),
        (
            """
            .. code-block:: shell

                false
                true
            """,
            "page:6: the exit status is 1",
        ),
        (
            """
            .. code-block:: python
                :class: other

                from celery import
            """,
            "page:7: the block is no Python",
        ),
        (
            """
            .. code-block:: console
                :class: other

                $ celery -A tasks worker
                $ if true
            """,
            "page:8: bash does not understand the command",
        ),
        (
            """
            .. code-block:: json

                {"board": }
            """,
            "page:4: the block is no json",
        ),
        (
            """
            .. code-block:: python

                text = "sqlite:///jobs.db"

            .. code-block:: sql
                :class: run

                SELECT * FROM nowhere
            """,
            "page:8: the SQL fails",
        ),
    ],
)
def test_a_page_with_a_fault(page: str, said: str, complaint: Complaint) -> None:
    assert complaint(page).startswith(said)


@pytest.mark.backends("sqlite")
def test_a_page_that_does_not_end(complaint: Complaint) -> None:
    text = """
        .. code-block:: console

            $ sleep 60
    """
    assert complaint(text, 5) == "page:6: $ sleep 60: the page is not done after 5 s"


@pytest.mark.backends("sqlite")
def test_stops(complaint: Complaint) -> None:
    """What runs for ever ends, in Python and in the shell."""
    found = complaint("""
        .. stop: 0.1
        .. code-block:: python

            import time
            while True:
                time.sleep(0.01)

        .. stop: "ready"
        .. code-block:: console

            $ echo ready && sleep 60
            ready

        .. code-block:: python

            import jobboard
            from jobboard.conductor import Conductor

            board = jobboard.fetch("pictures", "memory")
            board.connect()
            board.post("resize")

        .. stop: empty
        .. code-block:: python

            Conductor("me", board, {"resize": lambda job: print("resized")}).run()
            print("drained")

        .. code-block:: text
            :class: output

            resized
            drained
    """)
    assert found == "", found


SERVERS = {
    "postgresql": "postgresql+psycopg://app:secret@db/prod",
    "mariadb": "mysql://app@db/prod",
    "redis": "redis://cache:6379/0",
    "zookeeper": "zookeeper://zk1,zk2,zk3/prod",
    "etcd": "etcd://etcd1,etcd2,etcd3/prod",
}


@pytest.mark.backends(*SERVERS)
def test_a_page_with_a_server(
    backend: str, complaint: Complaint, servers_of: Callable[[list[str]], dict[str, str]]
) -> None:
    """The page has the server to itself, in Python and in the shell."""
    uri = SERVERS[backend]
    text = f"""
        .. backends: {backend}

        .. code-block:: python

            import jobboard

            with jobboard.backend("pictures", "{uri}?claim_ttl=5") as board:
                board.post("resize")
                print(board.job_count)

        .. code-block:: text
            :class: output

            1

        .. code-block:: console

            $ jobboard --board {uri} --name pictures list
            ... resize ...
    """
    for _ in range(2):
        found = complaint(text, servers=servers_of([backend]))
        assert found == "", found


@pytest.mark.backends("sqlite")
def test_only_the_agreed_uris_are_replaced() -> None:
    assert (
        replaced("mysql://app:secret@db/prod?table=a", {"mariadb": "mariadb://root@h:1/b"})
        == "mariadb://root@h:1/b?table=a"
    )
    assert (
        replaced("redis://cache:6379/01 redis://other:6379/0", {"redis": "redis://h:1/0"})
        == "redis://cache:6379/01 redis://other:6379/0"
    )


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("page", "said"),
    [
        (".. code-block:: bash\n\n    true\n", "'bash' is unknown"),
        (".. code-block::\n\n    true\n", "'' is unknown"),
        (".. code:: python\n\n    True\n", "is not run: write .. code-block::"),
        ("It is::\n\n    true\n", "a literal block is not run"),
        (".. skip: next\n\n.. code-block:: python\n\n    True\n", 'write .. skip: next "reason"'),
        (".. stop: idle\n\nA paragraph.\n", "stands before no block"),
    ],
)
def test_a_block_that_the_runner_does_not_know(page: str, said: str) -> None:
    with pytest.raises(PageError, match=said):
        parse(TITLE + page)


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("a   b\n", "a b", True),
        ("a\nb", "a b", False),
        ("a...d", "a b\nc d", True),
        ("a\n...\nb", "a\nb", True),
        ("a\n...\nb", "a\nx\ny\nb", True),
        ("a\n...", "a", True),
        ("a\n...", "b\na", False),
        ("...", "", True),
        ("a.c", "abc", False),
        ("a", "a\nb", False),
    ],
)
def test_outputs(expected: str, got: str, same: bool) -> None:
    assert matches(expected, got) is same


@pytest.mark.backends("sqlite")
def test_a_page_without_blocks_has_no_complaint(complaint: Complaint) -> None:
    assert complaint("A sentence.") == ""


@pytest.mark.backends("sqlite")
def test_a_caption_may_be_the_name_of_a_template_unit(complaint: Complaint) -> None:
    assert (
        complaint("""
        .. code-block:: systemd
            :caption: worker@.service

            [Service]

        .. code-block:: console

            $ cat worker@.service
            [Service]
    """)
        == ""
    )
