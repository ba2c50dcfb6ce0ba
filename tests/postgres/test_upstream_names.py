"""Columns with the names of our own code in a database that is followed: as values, and each once in a key."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from code_names import Row, Table, names, tables
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database

__all__ = ["small"]
OF_THE_SYSTEM = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


def created(name: str, table: Table) -> str:
    columns = ", ".join(f"{_quoted(one)} int" for one in table.columns)
    return f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({', '.join(map(_quoted, table.key))}))"


def inserted(name: str, row: Row) -> str:
    columns = ", ".join(map(_quoted, row))
    return f"INSERT INTO {name} ({columns}) VALUES ({', '.join(map(str, row.values()))})"


def statements(name: str, table: Table) -> Iterator[str]:
    for before, after in table.events():
        if before is None:
            assert after is not None
            yield inserted(name, after)
            continue
        where = " AND ".join(f"{_quoted(one)} = {before[one]}" for one in table.key)
        if after is None:
            yield f"DELETE FROM {name} WHERE {where}"
        else:
            new = ", ".join(f"{_quoted(one)} = {value}" for one, value in after.items())
            yield f"UPDATE {name} SET {new} WHERE {where}"


def _quoted(name: str) -> str:
    return f'"{name}"'


@pytest.mark.usefixtures("small")
def test_no_name_of_our_code_is_taken_for_ours(db: Database, tmp_path: Path) -> None:
    """Read in chunks while half of the changes arrive, then followed; the database itself is the judge."""
    of = {f"t{at}": table for at, table in enumerate(tables(_names(), 32, 64, rows=9))}
    of = {name if at else "t": table for at, (name, table) in enumerate(of.items())}
    for name, table in of.items():
        db(created(name, table), *(inserted(name, row) for row in table.snapshot()))
    job = PlainJob(db, tmp_path, {name: table.key for name, table in of.items()}, rows=100)
    job.step()
    for name, table in of.items():
        db(*statements(name, table))
    job.follow()
    for name, table in of.items():
        assert table.ordered(list(job.sink[name].values())) == table.after()


def _names() -> list[str]:
    return [name for name in names("lake") if name not in OF_THE_SYSTEM]
