"""Columns of every type as the server describes them: their order, their types, and those that are refused."""

import json

import psycopg
import pytest
from hint_typed import typed
from postgres_database import Database
from typed_columns import column, columns, db

from backfill_cli.errors import UsageError
from backfill_cli.upstreams.postgres.types import DESCRIBED, Column, by_table, spark_field

__all__ = ["db"]


@pytest.mark.parametrize("kind", ["regclass", "regtype", "regproc[]", "aclitem"])
def test_a_type_whose_text_is_the_name_of_something_else_is_refused(db: Database, kind: str) -> None:
    one = column(db, kind)
    with pytest.raises(UsageError, match=r"column 'v': .* another object") as caught:
        spark_field(one, "t")
    with typed(caught.value) as hint:
        db(*hint.statements())
        spark_field(columns(db, "t")[1], "t")
    kept = spark_field(columns(db, "t")[1], "t")["type"]
    assert (kept["elementType"] if isinstance(kept, dict) else kept) == "string"


def test_uuid_and_json_say_so(db: Database) -> None:
    found = {
        kind: spark_field(column(db, kind))["metadata"] for kind in ("uuid", "json", "jsonb", "text", "uuid[]")
    }
    assert found == {
        "uuid": {"logical": "uuid"},
        "json": {"logical": "json"},
        "jsonb": {"logical": "json"},
        "text": {},
        "uuid[]": {},
    }


def test_columns_are_in_order_without_dropped_and_generated_ones(db: Database) -> None:
    db(
        "DROP TABLE IF EXISTS w",
        'CREATE TABLE w (a int, "we""ird" text COLLATE "C" NOT NULL, '
        "g int GENERATED ALWAYS AS (z + 1) STORED, z int)",
        "ALTER TABLE w DROP COLUMN a",
        "ALTER TABLE w ADD COLUMN l varchar(7)",
        "ALTER TABLE w ALTER COLUMN l SET STORAGE PLAIN",
    )
    found = columns(db, "w")
    assert [one.name for one in found] == ['we"ird', "z", "l"]
    assert [one.not_null for one in found] == [True, False, False]
    assert [one.toasts for one in found] == [True, False, False]
    assert [one.collation for one in found] == ['pg_catalog."C"', "", 'pg_catalog."default"']
    assert [one.type_name for one in found] == ["text", "integer", "character varying(7)"]


def test_columns_are_described_by_name_and_type_alone(db: Database) -> None:
    db("DROP TABLE IF EXISTS w", "CREATE TABLE w (p price, m money2[], t tags, e mood, v varchar(3), c pair)")
    known = columns(db, "w")
    given = [one.name for one in known], [one.type_oid for one in known], [one.typmod for one in known]
    with psycopg.connect(db.dsn) as connection:
        assert by_table(connection.execute(DESCRIBED.encode(), given).fetchall()) == {0: known}


def test_columns_are_kept_as_json(db: Database) -> None:
    from backfill_cli.model.codec import decode, encode

    known = columns(db, "pg_class")
    assert [decode(Column, encode(one)) for one in known] == list(known)
    assert json.loads(encode(known[0]))["name"] == "oid"
