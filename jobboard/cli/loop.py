"""``jobboard loop``: tables of task loops."""

from __future__ import annotations

import click

from jobboard.cli.common import example


@click.group(epilog=example("jobboard loop create-table user_loop | mysql -D prod"))
def loop() -> None:
    """Make tables for task loops: recurring work over ids."""


@loop.command(
    epilog=example(
        "jobboard loop create-table user_loop | mysql -D prod",
        "jobboard loop create-table --dialect postgresql --id-type 'VARCHAR(64)' page_loop | psql prod",
    )
)
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@click.option("-i", "--id-type", default="int", show_default=True, help="The type of the ids in the database.")
@click.option("-e", "--engine", default="InnoDB", show_default=True, help="The storage engine, on MySQL and MariaDB.")
@click.option(
    "-d",
    "--dialect",
    default="mysql",
    show_default=True,
    type=click.Choice(["mysql", "mariadb", "postgresql", "sqlite"]),
    help="The database of the SQL.",
)
def create_table(tables: tuple[str, ...], id_type: str, engine: str, dialect: str) -> None:
    """Print the SQL that creates tables of task loops."""
    from jobboard.taskloop import sql_for_create

    try:
        texts = [sql_for_create(table, id_type, engine, dialect=dialect) for table in tables]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    for text in texts:
        click.echo(text + ";\n")
