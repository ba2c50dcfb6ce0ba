"""Types that share a name, and values whose shape is not a list's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_job import PlainJob, small
from postgres import Server
from postgres_database import Database, database

from backfill_cli.errors import BadData

__all__ = ["small"]

pytestmark = pytest.mark.usefixtures("small")


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        yield made


@pytest.mark.parametrize("path", ["public", "a, b", "b, a"])
def test_case_53_enums_of_one_name_in_two_schemas_stay_apart(db: Database, tmp_path: Path, path: str) -> None:
    """As keys and as values, whichever of them the role's sessions find first."""
    for schema, labels in (("a", "'low', 'high'"), ("b", "'red', 'green'")):
        db(
            f"CREATE SCHEMA {schema}",
            f"CREATE TYPE {schema}.kind AS ENUM ({labels})",
            f"CREATE TABLE {schema}.t (k {schema}.kind, id int, v {schema}.kind, PRIMARY KEY (k, id))",
        )
    db("CREATE TABLE public.both_ (id int PRIMARY KEY, x a.kind, y b.kind)")
    db(f"ALTER DATABASE {db.name} SET search_path = {path}")
    fill = "INSERT INTO {0}.t SELECT k, n, k FROM generate_series(1, 15) n, unnest(enum_range(NULL::{0}.kind)) k"
    db(*(fill.format(schema) for schema in "ab"), "INSERT INTO public.both_ VALUES (1, 'low', 'red')")
    job = PlainJob(db, tmp_path, {"a.t": ("k", "id"), "b.t": ("k", "id"), "public.both_": ("id",)})
    job.step()
    db(
        "UPDATE a.t SET v = 'high' WHERE id < 4", "UPDATE b.t SET k = 'green', id = id + 20 WHERE k = 'red'",
        "DELETE FROM b.t WHERE id = 2", "UPDATE public.both_ SET x = 'high', y = 'green'",
    )  # fmt: skip
    job.step()
    db(f"ALTER DATABASE {db.name} SET search_path = b, a, public", "UPDATE a.t SET v = 'low' WHERE id > 9")
    job.die()
    job.follow()
    assert job.sink["public.both_"][1,] == {"id": 1, "x": "high", "y": "green"}
    assert {row["v"] for row in job.sink["b.t"].values()} == {"red", "green"}


@pytest.mark.parametrize("kind", ["int[]", "text[]"])
@pytest.mark.parametrize("value", ["[2:3]={1,2}", "{{1,2},{3,4}}", "[0:0]={1}"])
@pytest.mark.parametrize("way", ["snapshot", "log"])
def test_case_51_an_array_that_is_no_list_is_refused_by_name_and_goes_on_once_corrected(
    db: Database, tmp_path: Path, kind: str, value: str, way: str
) -> None:
    db(f"CREATE TABLE t (id int PRIMARY KEY, v {kind})", "INSERT INTO t VALUES (1, '{1}'), (2, '{}')")
    change = f"UPDATE t SET v = '{value}' WHERE id = 2"
    if way == "snapshot":
        db(change)
    job = PlainJob(db, tmp_path, {"t": ("id",)})
    if way == "log":
        while not job.following:
            job.step(judged=False)
        db(change)
    with pytest.raises(BadData, match=r"id = 2.*column 'v' .* not a list of one dimension"):
        job.step(judged=False)
    db("UPDATE t SET v = '{1,2}' WHERE id = 2")
    while job.step(judged=False) or not job.following:
        pass
    assert [str(item) for item in job.sink["t"][2,]["v"]] == ["1", "2"]
