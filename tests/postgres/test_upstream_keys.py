"""Keys of every kind, while rows are written, moved and deleted between all steps of an epoch: the real server."""

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from plain_job import Between, PlainJob, small
from postgres import Server
from postgres_database import Database, database
from psycopg import sql

__all__ = ["small"]

WORDS = [
    "", " ", "a", "A", "á", "Á", "ä", "b", "B", "z", "Z", "ß", "ss", "SS", "co-op", "coop", "CO-OP", "ab",
    "o'clock", 'say "x"', "back\\slash", "\\", "%", "_", "{a,b}", "NULL", "null", "漢", "字", "😀",
    "é", "e\u0301", "tab\t", "a b", "A B",
    "line\nbreak", "$1", "0", "10", "9", "E'", "--", "/*", ";",
]  # fmt: skip
NUMBERS = [
    "-1e10",
    "-1",
    "-0.001",
    "0",
    "1.0",
    "1.00",
    "1.1",
    "2",
    "10",
    "9",
    "1e20",
    "1e-20",
    "NaN",
    "Infinity",
    "3",
]

KINDS: dict[str, tuple[str, list[str]]] = {
    "icu": ('text COLLATE "en-US-x-icu"', WORDS),
    "german": ('text COLLATE "de-DE-x-icu"', WORDS),
    "caseless": ("text COLLATE caseless", WORDS),
    "plain": ("text", WORDS),
    "short": ("varchar(12)", [word for word in WORDS if len(word) <= 12]),
    "blanks": ('char(5) COLLATE "en-US-x-icu"', ["", "a", "A", "ab", "b c", "á", "zzzzz", "'", "\\", "Z", "y"]),
    "names": ("name", ["a", "B", "c d", "é", "'", "\\"]),
    "whole": ("bigint", [str(n) for n in (-(2**63), -5, -1, 0, 1, 7, 9, 10, 2**63 - 1, *range(50, 70))]),
    "small": ("smallint", [str(n) for n in range(-9, 15)]),
    "exact": ("numeric(9,3)", ["-1.5", "0", "1", "1.001", "2.5", "100000", "999999.999", "-999999.999", "3", "4"]),
    "number": ("numeric", NUMBERS),
    "floating": ("double precision", ["-1e300", "-1", "-0", "0", "1e-300", "0.1", "NaN", "Infinity", "-Infinity"]),
    "id": ("uuid", [f"{n * 7919 % 256:02x}{'0' * 6}-0000-4000-8000-{n:012x}" for n in range(30)]),
    "bytes": ("bytea", [rf"\x{n * 97 % 65536:04x}" for n in range(30)] + [r"\x", r"\x00", r"\xff", r"\x0000"]),
    "moment": ("timestamptz", [f"20{n % 30 + 10}-03-09 02:30:00.00000{n % 10}+0{n % 5}" for n in range(30)]),
    "local": ("timestamp", [f"{n * 300 + 1}-03-01 00:00:00.12345{n % 10}" for n in range(20)]),
    "day": ("date", [f"{n * 300 + 1:04d}-02-28" for n in range(20)]),
    "mood": ("mood", ["sad", "it's ok", "Happy", "\\"]),
    "email": ("email", [f"{w}@x" for w in WORDS]),
    "flag": ("boolean", ["true", "false"]),
    "address": ("inet", ["10.0.0.1", "9.0.0.0/8", "::1", "10.0.0.1/8", "192.168.0.0/16", "2001:db8::/32"]),
    "span": ("interval", ["1 mon", "30 days", "1 day", "24:00:00", "-1 year", "00:00:00", "1 mon 1 day"]),
    "doc": ("jsonb", ["{}", "[]", '"a"', "1", "1.0", '{"a": "b"}', "null", "true", '[1, "x\\\\"]']),
    "bits": ("varbit", ["", "0", "1", "01", "10", "111"]),
    "clock": ("time", ["00:00", "23:59:59.999999", "12:00", "24:00"]),
    "range": ("int4range", ["empty", "[1,5)", "[1,6)", "(,3)", "[7,)"]),
}  # fmt: skip


@pytest.fixture
def db(postgres: Server) -> Iterator[Database]:
    with database(postgres) as made:
        made(
            "CREATE COLLATION caseless (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
            r"CREATE TYPE mood AS ENUM ('sad', 'it''s ok', 'Happy', '\')",
            "CREATE DOMAIN email AS text COLLATE \"en-US-x-icu\" CHECK (VALUE LIKE '%@%')",
        )
        yield made


class Writer:
    """Writes at random. keys: by table, the texts of each of its key's columns to draw from. casts: of a column,
    where a comparison needs one.
    """

    def __init__(
        self,
        db: Database,
        keys: dict[str, dict[str, list[str]]],
        draw: random.Random,
        casts: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        self.keys, self.draw, self.casts = keys, draw, casts or {}
        self.connection = psycopg.connect(db.dsn, autocommit=True, cursor_factory=psycopg.ClientCursor)
        self.written = 0

    def key(self, table: str) -> list[str]:
        return [self.draw.choice(texts) for texts in self.keys[table].values()]

    def where(self, table: str, key: Sequence[str]) -> sql.Composable:
        parts = (
            sql.SQL("{}{} = {}").format(
                sql.Identifier(name),
                sql.SQL(self.casts.get((table, name), "")),  # type: ignore[arg-type]
                sql.Literal(text),
            )
            for name, text in zip(self.keys[table], key, strict=True)
        )
        return sql.SQL(" AND ").join(parts)

    def to(self, table: str, key: Sequence[str]) -> sql.Composable:
        parts = (
            sql.SQL("{} = {}").format(sql.Identifier(name), sql.Literal(text))
            for name, text in zip(self.keys[table], key, strict=True)
        )
        return sql.SQL(", ").join(parts)

    def run(self, query: str, table: str, *given: Any) -> None:
        self.connection.execute(sql.SQL(query).format(sql.SQL(table), *given))  # type: ignore[arg-type]

    def insert(self, table: str) -> None:
        self.written += 1
        values = sql.SQL(", ").join(map(sql.Literal, self.key(table)))
        self.run("INSERT INTO {} VALUES ({}, {}) ON CONFLICT DO NOTHING", table, values, sql.Literal(self.written))

    def change(self, table: str) -> None:
        """An insert, an update, a key change, or a delete."""
        self.written += 1
        key = self.key(table)
        match self.draw.randrange(4):
            case 0:
                self.insert(table)
            case 1:
                self.run("UPDATE {} SET v = {} WHERE {}", table, sql.Literal(self.written), self.where(table, key))
            case 2:
                try:
                    with self.connection.transaction():
                        to = self.to(table, self.key(table))
                        self.run("UPDATE {} SET {} WHERE {}", table, to, self.where(table, key))
                except psycopg.errors.UniqueViolation:
                    pass
            case 3:
                self.run("DELETE FROM {} WHERE {}", table, self.where(table, key))

    def some(self) -> None:
        """A transaction over some tables, at times with a part that is rolled back, at times rolled back whole."""
        with self.connection.transaction() as whole:
            for table in self.draw.sample(list(self.keys), min(len(self.keys), 4)):
                self.change(table)
                if self.draw.random() < 0.2:
                    with self.connection.transaction() as part:
                        self.change(table)
                        raise psycopg.Rollback(part)
            if self.draw.random() < 0.05:
                table = self.draw.choice(list(self.keys))
                self.run("TRUNCATE {}", table)
                self.insert(table)
            if self.draw.random() < 0.1:
                raise psycopg.Rollback(whole)


def run(job: PlainJob, writer: Writer, draw: random.Random) -> None:
    """To the end of the snapshot and on, with deaths; each commit is judged."""
    after = 0
    while after < 6:
        if draw.random() < 0.15:
            job.step(commit=False)
            job.die()
        job.step()
        after += job.following
    job.between = Between()
    job.follow()


TEXTS = ("icu", "german", "caseless", "plain", "blanks", "email")


@pytest.mark.usefixtures("small")
def test_case_12_a_collation_that_knows_no_case_tells_rows_apart_as_the_database_does(
    db: Database, tmp_path: Path
) -> None:
    db("CREATE TABLE t (k text COLLATE caseless PRIMARY KEY, v int)")
    db("INSERT INTO t SELECT chr(96 + n), n FROM generate_series(1, 26) n")
    job = PlainJob(db, tmp_path, {"t": ("k",)}, rows=8)
    job.step()
    db("UPDATE t SET k = upper(k) WHERE v % 2 = 0", "DELETE FROM t WHERE k = 'C'", "INSERT INTO t VALUES ('C', 0)")
    with pytest.raises(psycopg.errors.UniqueViolation):
        db("INSERT INTO t VALUES ('c', 0)")
    job.follow()
    assert {("B",), ("C",), ("e",)} <= set(job.sink["t"])
    db("UPDATE t SET k = lower(k)")
    job.follow()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("names", [TEXTS, [name for name in KINDS if name not in TEXTS]], ids=["text", "others"])
def test_case_09_keys_are_in_the_databases_order(db: Database, tmp_path: Path, names: Sequence[str]) -> None:
    draw = random.Random(1)
    for name in names:
        db(f"CREATE TABLE k_{name} (k {KINDS[name][0]} PRIMARY KEY, v bigint)")
    writer = Writer(db, {f"k_{name}": {"k": KINDS[name][1]} for name in names}, draw)
    for table in writer.keys:
        for _ in range(40):
            writer.insert(table)
    db("ANALYZE")
    job = PlainJob(db, tmp_path, dict.fromkeys(writer.keys, ("k",)), rows=12 if names is TEXTS else 30)
    assert len(job.pin.splits) > len(writer.keys)
    job.between = Between(*[lambda: [writer.some() for _ in range(3)]] * 4)
    run(job, writer, draw)
    assert job.epochs > 10


DOMAINS = {
    "mood": ("mood", KINDS["mood"][1]),
    "once": ("feeling", KINDS["mood"][1]),
    "twice": ("feeling_too", KINDS["mood"][1]),
    "exact": ("money_of", NUMBERS),
    "blanks": ("blanks", ["", "a", "A", "ab", "b c", "zzzzz"]),
    "caseless": ("caseless_of", ["a", "B", "c", "Z", "d"]),
    "bits": ("bits", ["000", "101", "110"]),
}


@pytest.mark.usefixtures("small")
def test_case_52_a_key_of_an_enum_or_a_domain_is_read_in_parts_and_deleted(db: Database, tmp_path: Path) -> None:
    """The second column of a key, too; the server finds no operators of its own for a domain over an enum."""
    db(
        "CREATE DOMAIN feeling AS mood NOT NULL",
        "CREATE DOMAIN feeling_too AS feeling DEFAULT 'sad'",
        "CREATE DOMAIN money_of AS numeric",
        "CREATE DOMAIN blanks AS char(5)",
        "CREATE DOMAIN caseless_of AS text COLLATE caseless",
        "CREATE DOMAIN bits AS bit(3)",
    )
    draw = random.Random(5)
    keys: dict[str, dict[str, list[str]]] = {}
    for name, (kind, texts) in DOMAINS.items():
        db(f"CREATE TABLE d_{name} (k {kind}, n int, v bigint, PRIMARY KEY (k, n))")
        keys[f"d_{name}"] = {"k": texts, "n": [str(n) for n in range(12)]}
    writer = Writer(db, keys, draw, {("d_once", "k"): "::mood", ("d_twice", "k"): "::mood"})
    for table in keys:
        for _ in range(40):
            writer.insert(table)
    db("ANALYZE")
    enums = {table: {"k": "mood"} for table in ("d_once", "d_twice")}
    job = PlainJob(db, tmp_path, dict.fromkeys(keys, ("k", "n")), rows=24, enums=enums)
    job.between = Between(*[lambda: [writer.some() for _ in range(2)]] * 4)
    run(job, writer, draw)
    for table in keys:
        db(f"DELETE FROM {table}")
    job.follow()
    assert not any(job.sink.values())


@pytest.mark.usefixtures("small")
def test_case_60_keys_at_the_ends_of_int64_in_more_splits_than_rows(db: Database, tmp_path: Path) -> None:
    ends = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
    db(
        "CREATE TABLE ends (k bigint PRIMARY KEY, v int)",
        "INSERT INTO ends SELECT n, n FROM generate_series(1, 90) n",
    )
    db(f"INSERT INTO ends SELECT unnest(ARRAY{ends[:4] + ends[5:]}), 0", "ANALYZE ends")
    db("DELETE FROM ends WHERE k BETWEEN 2 AND 90")
    job = PlainJob(db, tmp_path, {"ends": ("k",)}, rows=2)
    assert len(job.pin.splits) > len(ends)
    job.between.rows = lambda: db("UPDATE ends SET v = v + 1") and None
    for _ in range(3):
        job.step()
    job.between = Between()
    job.follow()
    assert sorted(key for (key,) in job.sink["ends"]) == ends
