"""Values whose text depends on a session's settings: one text from the first row read to the last change."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest
from plain_job import PlainJob, small
from postgres import Server, running
from postgres_database import Database, database, open_folder
from test_types import ARRAYS, GOOD
from typed_columns import TYPES

from backfill_cli.errors import BadData, UsageError

__all__ = ["small"]

pytestmark = pytest.mark.usefixtures("small")

LOCALES = ("de_DE", "ja_JP")
MORE = """
CREATE TYPE priced AS (m money, at timestamptz, d interval, f float8, b bytea);
CREATE DOMAIN fee AS money;
CREATE TYPE fees AS RANGE (subtype = money);
"""
DEEP = {
    "fee": "12.34", "money[]": "{12.34}", "fees": "[1,2)", "fees_multirange": "{[1,2)}", "fee[]": "{7}",
    "priced": '(12.34,2024-07-01 12:00+02,1 year -3 days,0.30000000000000004,\\\\x00ff)',
    "priced[]": '{"(12.34,2024-07-01 12:00+02,1 year -3 days,0.30000000000000004,\\\\\\\\x00ff)"}',
    "interval[]": "{1 year -3 days}", "point[]": '{"(0.30000000000000004,0.1)"}',
}  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With locales of its own: the machine may have none."""
    if shutil.which("localedef") is None:
        pytest.skip("localedef is not installed")
    with open_folder() as folder:
        for name in LOCALES:
            made = folder / "locales" / f"{name}.UTF-8"
            made.parent.mkdir(exist_ok=True)
            subprocess.run(["localedef", "-i", name, "-f", "UTF-8", made], check=True, capture_output=True)
        before = os.environ.get("LOCPATH")
        os.environ["LOCPATH"] = str(folder / "locales")
        try:
            with running(folder / "server") as held:
                yield held
        finally:
            if before is None:
                del os.environ["LOCPATH"]
            else:
                os.environ["LOCPATH"] = before


@pytest.fixture
def db(server: Server) -> Iterator[Database]:
    """With a table of every type, `every`, of two rows with the same values."""
    with database(server) as made:
        made(*(TYPES + MORE).strip().split("\n"))
        values = {kind: next(v for v in literals if v is not None) for kind, (_, _, literals) in GOOD.items()}
        values |= {kind: next(v for v in literals if v is not None) for kind, (_, literals, _) in ARRAYS.items()}
        values |= DEEP
        columns = ", ".join(f"v{n} {kind}" for n, kind in enumerate(values))
        made(f"CREATE TABLE every (id int PRIMARY KEY, {columns})")
        with psycopg.connect(made.dsn, autocommit=True) as connection:
            marks = ", ".join(["%s"] * len(values))
            for key in (1, 2):
                connection.execute(f"INSERT INTO every VALUES ({key}, {marks})".encode(), [*values.values()])
        yield made


TEXTS = {
    "DateStyle": "German, DMY", "IntervalStyle": "sql_standard", "TimeZone": "Asia/Kolkata",
    "extra_float_digits": "-10", "lc_monetary": "de_DE.UTF-8", "lc_time": "de_DE.UTF-8",
    "lc_numeric": "de_DE.UTF-8", "search_path": "pg_catalog, public", "client_encoding": "LATIN1",
}  # fmt: skip
KEPT = {
    "default_transaction_read_only", "transaction_read_only", "transaction_deferrable", "transaction_isolation",
}  # fmt: skip
"""Those that are about what a session may do, and not about texts."""


def changed(db: Database) -> list[str]:
    """Every setting that a user may change has another value than the default, in new sessions of the database."""
    found = db(
        "SELECT name, setting, vartype, enumvals FROM pg_settings "
        "WHERE context = 'user' AND vartype IN ('bool', 'enum')"
    )
    for name, setting, kind, values in found:
        if name in KEPT or name in TEXTS:
            continue
        others = [value for value in (values if kind == "enum" else ("on", "off")) if value != setting]
        db(f"ALTER DATABASE {db.name} SET {name} = '{others[-1]}'")
    for name, text in TEXTS.items():
        db(f"ALTER DATABASE {db.name} SET {name} = {text if name == 'search_path' else repr(text)}")
    return [name for name, *_ in found]


def to_its_end(job: PlainJob) -> None:
    """Not judged by the database's texts, which are those of another session."""
    while job.step(judged=False) or not job.following:
        pass


def test_case_54_texts_are_the_same_whatever_a_session_is_set_to(db: Database, tmp_path: Path) -> None:
    job = PlainJob(db, tmp_path, {"public.every": ("id",)})
    to_its_end(job)
    read = {key: dict(row) for key, row in job.sink["public.every"].items()}
    assert {"quote_all_identifiers", "xmloption", "bytea_output"} <= {*changed(db)}
    assert db("SELECT strpos('1'::money::text, ',') > 0") == [(True,)]  # sessions of others see it
    job.die()
    db("UPDATE every SET id = id + 10 WHERE id = 2", "UPDATE every SET id = id WHERE id = 1")
    to_its_end(job)
    later = PlainJob(db, tmp_path, {"public.every": ("id",)}, options={"slot": f"later_{db.name}"})
    to_its_end(later)
    for rows in (job.sink["public.every"], later.sink["public.every"]):
        assert {key: {**row, "id": 0} for key, row in rows.items()} == {
            (1,): {**read[1,], "id": 0},
            (12,): {**read[2,], "id": 0},
        }
    assert "$12.34" in json.dumps([*read[1,].values()], default=str)


@pytest.mark.parametrize("kind", ["money", "fee[]"])
def test_a_job_that_began_with_the_databases_text_of_money_stops_if_that_is_another(
    db: Database, tmp_path: Path, kind: str
) -> None:
    db(f"CREATE TABLE m (id int PRIMARY KEY, m {kind})", "INSERT INTO m VALUES (1)")
    job = PlainJob(db, tmp_path, {"m": ("id",)})
    job.follow()
    known = json.loads(job.pin.identity)
    del known["lc_monetary"]
    job.pin = replace(job.pin, identity=json.dumps(known))
    job.die()
    db("UPDATE m SET m = NULL")
    job.follow()
    db(f"ALTER DATABASE {db.name} SET lc_monetary = 'de_DE.UTF-8'")
    with pytest.raises(BadData, match=r"'m', column 'm': .* lc_monetary, 'de_DE.UTF-8', .* is now '\$1,234.50'"):
        job.die()


def test_money_whose_locale_has_no_cents_is_refused_and_the_hint_works(db: Database, tmp_path: Path) -> None:
    db("CREATE TABLE yen (id int PRIMARY KEY, m fee)", f"ALTER DATABASE {db.name} SET lc_monetary = 'ja_JP.UTF-8'")
    db("INSERT INTO yen VALUES (1, 500)")
    with pytest.raises(UsageError, match="money has not two decimal places") as refused:
        PlainJob(db, tmp_path, {"yen": ("id",)})
    db(str(refused.value.hint))
    job = PlainJob(db, tmp_path, {"yen": ("id",)})
    job.follow()
    assert job.sink["yen"][1,]["m"] == "500"
