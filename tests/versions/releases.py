"""A later release of this library, made from a copy: layout 2, with a field of records, a column, and a field and a
version of postings."""

import shutil
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "jobboard"

UPGRADE = """
def _add_mark(connection: Connection, tables: Tables) -> None:
    import os, signal

    for table in (tables.jobs, tables.outcomes):
        if "mark" not in {column["name"] for column in sa.inspect(connection).get_columns(table.name)}:
            column = sa.schema.CreateColumn(table.c.mark).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {column}")
        if "KILLED_IN_SETUP" in os.environ:
            os.kill(os.getpid(), signal.SIGKILL)


UPGRADES: Mapping[int, Upgrade] = {1: _add_mark}
"""

FIELD = "    note: bytes | str | None = None\n\n    @property\n"
MARKED = FIELD.replace("\n\n", "\n    mark: str | None = None\n\n")

DRAFT = "def _draft(given: Posting"
MARKED_DRAFT = f"""def _draft(*given: Any) -> Draft:
    draft = _plain_draft(*given)
    return draft._replace(mark="new", version=2 if draft.name == "later" else 1)


{DRAFT.replace("_draft", "_plain_draft")}"""

COLUMNS = '}\n"""The fields of a record, in its order'
MORE_COLUMNS = f'    "mark": FieldColumn("mark", Exact(MAX_TEXT), nullable=True),\n{COLUMNS}'

ORIGIN = "    schedule: list[Any] | None = None\n"

EDITS = {
    # The layout.
    "backends/sql/layout.py": {
        "\nLAYOUT = 1\n": "\nLAYOUT = 2\n",
        "\nUPGRADES: Mapping[int, Upgrade] = {}\n": UPGRADE,
    },
    "backends/redis/store.py": {"\nLAYOUT = 1\n": "\nLAYOUT = 2\n"},
    "kv/store.py": {"\nVERSION = 1\n": "\nVERSION = 2\n"},
    "engine/store.py": {'    return metadata.version("jobboard")\n': '    return "2.0"\n'},
    # The field of a record, and its column.
    "states.py": {FIELD: MARKED},
    "primitives.py": {FIELD: MARKED, "self.key is None and ": "self.key is self.mark is None and "},
    "arguments.py": {DRAFT: MARKED_DRAFT},
    "backends/sql/columns.py": {COLUMNS: MORE_COLUMNS},
    # The field and the version of a posting.
    "codec.py": {
        ORIGIN: f'{ORIGIN}    origin: str | None = "new"\n',
        "\nVERSION = 1\n": "\nVERSION = 2\n",
    },
}


def later_release(folder: Path) -> Path:
    """Return the folder of a copy of the package with these changes."""
    shutil.copytree(PACKAGE, folder / "jobboard", ignore=shutil.ignore_patterns("__pycache__"))
    for name, edits in EDITS.items():
        path = folder / "jobboard" / name
        text = path.read_text()
        for old, new in edits.items():
            assert text.count(old) == 1, f"{name} has {old!r} {text.count(old)} times: change this edit, too"
            text = text.replace(old, new)
        path.write_text(text)
    return folder
