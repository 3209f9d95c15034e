"""Django's ``flush``, also for the tables of boards. A ``TransactionTestCase`` ends with it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.core.management.commands import flush
from django.db import connections

from jobboard.contrib.django import boards, databases


class FlushCommand(flush.Command):
    def handle(self, *, database: str, **options: Any) -> None:
        operations = connections[database].ops
        execute = operations.execute_sql_flush

        def with_boards(statements: Sequence[str]) -> None:
            # Boards remember their jobs.
            boards.leave_databases(database)
            execute([*statements, *_delete_statements(database)])

        # Django runs this behind its question to the user.
        operations.execute_sql_flush = with_boards
        try:
            super().handle(database=database, **options)
        finally:
            del operations.execute_sql_flush


Command = FlushCommand
"""The name that Django looks for."""


def _delete_statements(database: str) -> list[str]:
    if not databases.has_tasks():
        return []
    from jobboard.contrib.django.backend import boards_in

    there = connections[database].introspection.table_names()
    tables = {table.name: table for board in boards_in(database) for table in board.table.metadata.sorted_tables}
    # The table with the layout stays. The other tables are not truncated, as boards would wait for the lock of a
    # truncation until Django's transaction ends.
    emptied = [table for name, table in tables.items() if name in there and "layout" not in table.c]
    return [str(table.delete().compile(dialect=databases.engine_of(database).dialect)) for table in emptied]
