"""Django's ``flush``, for the tables of boards, too: a ``TransactionTestCase`` ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.management.commands import flush
from django.db import connections

from jobboard.contrib.django import boards, joining
from jobboard.contrib.django.backend import boards_in


class FlushCommand(flush.Command):
    def handle(self, *, database: str, **options: Any) -> None:
        operations = connections[database].ops
        execute = operations.execute_sql_flush

        def with_boards(statements: Sequence[str]) -> None:
            with boards.emptying(database):
                execute([*statements, *_emptying(database)])

        # Only behind the question whether it is meant is there something that can be added to.
        operations.execute_sql_flush = with_boards
        try:
            super().handle(database=database, **options)
        finally:
            del operations.execute_sql_flush


Command = FlushCommand
"""As Django looks for it."""


def _emptying(database: str) -> list[str]:
    there = connections[database].introspection.table_names()
    tables = {table.name: table for board in boards_in(database) for table in board.table.metadata.sorted_tables}
    # What tells the layout of the others stays. Nor are they truncated, as the boards would wait for the lock of that
    # until a transaction ends that Django may be in.
    emptied = [table for name, table in tables.items() if name in there and "layout" not in table.c]
    return [str(table.delete().compile(dialect=joining._engine(database).dialect)) for table in emptied]
