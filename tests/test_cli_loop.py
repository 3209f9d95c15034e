"""``jobboard loop``."""

import pytest

from jobboard.cli import main


def test_create_table_prints_the_sql(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loop", "create-table", "a_loop", "b_loop"]) == 0
    printed = capsys.readouterr().out
    assert "CREATE TABLE `a_loop` (\n    `id` int NOT NULL,\n" in printed
    assert "CREATE INDEX `lock_until` ON `b_loop` (`lock_until`, `last_updated`);" in printed
    assert printed.count(";") == 4
    assert "ENGINE=InnoDB" in printed


def test_create_table_for_another_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loop", "create-table", "-d", "postgresql", "-i", "VARCHAR(64)", "a_loop"]) == 0
    printed = capsys.readouterr().out
    assert 'CREATE TABLE "a_loop"' in printed
    assert '"id" VARCHAR(64) NOT NULL' in printed
    assert 'CREATE INDEX "a_loop_lock_until" ON "a_loop" ("lock_until", "last_updated" NULLS FIRST, "id");' in printed
    assert "ENGINE" not in printed


@pytest.mark.parametrize("dialect", ["mysql", "mariadb", "postgresql", "sqlite"])
def test_create_table_prints_what_a_client_reads_and_not_a_driver(
    dialect: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["loop", "create-table", "-d", dialect, "a%b:c"]) == 0
    printed = capsys.readouterr().out
    assert "a%b:c" in printed
    assert "%%" not in printed


@pytest.mark.parametrize("args", [[], ["-d", "oracle", "a_loop"], ["a_loop", ""], ["-e", "MyISAM", "a_loop"]], ids=str)
def test_a_wrong_call(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["loop", "create-table", *args]) == 2
    said = capsys.readouterr()
    assert "jobboard: " in said.err
    assert said.out == ""
