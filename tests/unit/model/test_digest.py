"""The digest is the same for the same rows, and another for rows that differ in the least."""

import math
import random
from dataclasses import replace
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backfill_cli.model.digest import (
    PARTS,
    RANGES,
    Dialect,
    DigestSpec,
    KeyRanges,
    Word,
    WordColumn,
    ranges_sql,
    sample_parts,
    sampled_sql,
    spec_of,
    whole_sql,
)

DUCKDB = Dialect(
    word=lambda column: f't."{column.name}"',
    xor=lambda a, b: f"xor({a}, {b})",
    quotient=lambda value, by: f"({value} // {by})",
)
SPEC = DigestSpec(("k",), (WordColumn("k", Word.INTEGER), WordColumn("v", Word.INTEGER)))
BIGINTS = st.integers(-(2**63), 2**63 - 1)
TABLES = st.dictionaries(BIGINTS, st.none() | BIGINTS, max_size=8)


def digest(con: "duckdb.DuckDBPyConnection", rows: list[tuple[Any, Any]]) -> tuple[Any, ...]:
    con.execute("CREATE OR REPLACE TEMP TABLE t (k BIGINT, v BIGINT)")
    con.execute("INSERT INTO t SELECT unnest($k::BIGINT[]), unnest($v::BIGINT[])", columns(rows))
    return con.execute(whole_sql(SPEC, DUCKDB, "t")).fetchall()[0]


def columns(rows: list[tuple[Any, Any]]) -> dict[str, list[Any]]:
    return {"k": [k for k, _ in rows], "v": [v for _, v in rows]}


def by_range(con: "duckdb.DuckDBPyConnection", ranges: KeyRanges) -> dict[int, tuple[Any, ...]]:
    return {part: rest for part, *rest in con.execute(ranges_sql(SPEC, ranges, DUCKDB, "t")).fetchall()}


@pytest.fixture(scope="module")
def con() -> "duckdb.DuckDBPyConnection":
    return duckdb.connect()


@settings(deadline=None)
@given(table=TABLES, seed=st.integers(0, 99))
def test_the_order_of_rows_does_not_count(con: Any, table: dict[int, int | None], seed: int) -> None:
    rows = list(table.items())
    shuffled = random.Random(seed).sample(rows, len(rows))
    assert digest(con, rows) == digest(con, shuffled)


@settings(deadline=None)
@given(one=TABLES, other=TABLES)
def test_different_tables_have_different_digests(
    con: Any, one: dict[int, int | None], other: dict[int, int | None]
) -> None:
    assert (digest(con, list(one.items())) == digest(con, list(other.items()))) == (one == other)


@settings(deadline=None)
@given(
    keys=st.lists(BIGINTS, min_size=2, max_size=2, unique=True),
    value=st.integers(0, 2**62 - 1),
    step=st.sampled_from([1, 2, 2**20, 2**30, 2**31, 2**32, 2**40, 2**61, 2**62]),
)
def test_values_that_changed_places_are_seen(con: Any, keys: list[int], value: int, step: int) -> None:
    a, b = keys
    assert digest(con, [(a, value), (b, value + step)]) != digest(con, [(a, value + step), (b, value)])


def test_steps_that_cancel_out_in_sums_are_seen(con: Any) -> None:
    rows = [(k, 100 + k) for k in range(4)]
    moved = [(k, v + step) for (k, v), step in zip(rows, (1, -1, -1, 1), strict=True)]
    assert digest(con, rows) != digest(con, moved)


@pytest.mark.parametrize("step", [1, 2**29, 2**30, 2**60, 2**61, 2**62])
def test_hashes_of_swapped_values_have_no_structure(con: Any, step: int) -> None:
    """30,000 pairs of neighbours change places: what is left of a pair looks random in each window of bits."""
    con.execute("CREATE OR REPLACE TEMP TABLE t (k BIGINT, v BIGINT)")
    value = f"g * 37 % 100 + d * {step}"
    pairs = f"SELECT g, d, {value} FROM range(30000) a(g), range(2) b(d)"
    con.execute(f"INSERT INTO t SELECT 2 * g + d, v FROM ({pairs}) p(g, d, v)")
    con.execute(f"INSERT INTO t SELECT 2 * g + 1 - d, v FROM ({pairs}) p(g, d, v)")
    left = ranges_sql(SPEC, KeyRanges(0, 2, 30000), DUCKDB, "t")
    for shift in range(0, 60, 10):
        zero = con.execute(f"SELECT count(*) FROM ({left}) WHERE (h1 >> {shift}) & 1023 = 0").fetchall()[0][0]
        assert zero < 75, f"29 are expected by chance, 75 in one run of 10^11, at bit {shift}"


def test_null_is_no_value(con: Any) -> None:
    digests = {digest(con, [(1, value)]) for value in (None, 0, 1, -1, 2**63 - 1, -(2**63))}
    assert len(digests) == 6


def test_a_row_that_is_there_three_times_is_seen_by_the_count(con: Any) -> None:
    once, thrice = digest(con, [(1, 1)]), digest(con, [(1, 1)] * 3)
    assert once[2] == thrice[2]
    assert once != thrice


@settings(deadline=None)
@given(table=TABLES)
def test_ranges_cover_every_row_once_whatever_its_key(con: Any, table: dict[int, int | None]) -> None:
    digest(con, list(table.items()))
    low, high = (min(table), max(table)) if table else (0, 0)
    ranges = KeyRanges.between(low, high)
    found = by_range(con, ranges)
    assert sum(n for n, *_ in found.values()) == len(table)
    assert all(0 <= part < ranges.count <= RANGES + 1 for part in found)


def test_a_range_names_the_column_that_differs(con: Any) -> None:
    ranges = KeyRanges.between(0, 639)
    rows = [(k, 7) for k in range(640)]
    digest(con, rows)
    before = by_range(con, ranges)
    digest(con, [(k, 8 if k == 25 else 7) for k in range(640)])
    after = by_range(con, ranges)
    assert [part for part in before if before[part] != after[part]] == [2]
    assert (before[2][:2], before[2][2] == after[2][2]) == (after[2][:2], False)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("byte", Word.INTEGER),
        ("long", Word.INTEGER),
        ("boolean", Word.BOOLEAN),
        ("date", Word.DAYS),
        ("timestamp", Word.MICROS),
        ("timestamp_ntz", Word.MICROS),
        ("decimal(18,3)", Word.UNSCALED),
        ("decimal(19,3)", None),
        ("string", None),
        ("double", None),
        ("binary", None),
    ],
)
def test_which_types_have_a_word(kind: str, word: Word | None) -> None:
    schema = f'{{"fields": [{{"name": "k", "type": "long"}}, {{"name": "v", "type": "{kind}"}}]}}'
    spec = spec_of(schema, ("k",), frozenset())
    assert spec is not None
    assert [column.word for column in spec.columns[1:]] == ([word] if word else [])


def test_strings_have_a_word_only_where_they_are_few_and_a_key_without_one_has_no_spec() -> None:
    schema = '{"fields": [{"name": "k", "type": "string"}, {"name": "v", "type": "long"}]}'
    assert spec_of(schema, ("k",), frozenset()) is None
    spec = spec_of(schema, ("v",), frozenset({"k"}))
    assert spec is not None
    assert spec.names == ("v", "k")


SAMPLED_KEYS = {
    "one after the other": "i",
    "every thousandth": "i * 1000",
    "below zero": "-i * 7",
    "far apart": "9223372036854775807 - i * 90000000000000",
    "times": "1700000000000000 + i * 86400000000",
}


@pytest.mark.parametrize("keys", SAMPLED_KEYS.values(), ids=SAMPLED_KEYS.keys())
@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_a_sample_is_about_its_share_of_keys_of_any_kind(con: Any, keys: str, share: float) -> None:
    rows = 100_000
    con.execute(f"CREATE OR REPLACE TEMP TABLE t AS SELECT ({keys})::BIGINT AS k, i AS v FROM range({rows}) r(i)")
    sampled = replace(SPEC, sample=sample_parts(share))
    (counted,) = con.execute(f"SELECT n FROM ({whole_sql(sampled, DUCKDB, 't')})").fetchone()
    spread = 5 * math.sqrt(rows * share * (1 - share))
    assert abs(counted - rows * share) < spread
    one_by_one = con.execute(
        f"SELECT count(*) FROM t WHERE {sampled_sql(sample_parts(share), ['t.k'], DUCKDB)}"
    ).fetchone()
    assert one_by_one == (counted,)


def test_a_sample_goes_by_the_whole_key_and_nothing_else(con: Any) -> None:
    """Half of the second key column's values are in it for each value of the first; other columns do not count."""
    con.execute(
        "CREATE OR REPLACE TEMP TABLE t AS SELECT i // 100 AS a, i % 100 AS b, i AS v FROM range(10000) r(i)"
    )
    columns = tuple(WordColumn(name, Word.INTEGER) for name in ("a", "b", "v"))
    spec = DigestSpec(("a", "b"), columns, sample_parts(0.5))
    taken = (
        f"SELECT a, count(*) AS n FROM t WHERE {sampled_sql(sample_parts(0.5), ['t.a', 't.b'], DUCKDB)} GROUP BY a"
    )
    low, high, groups = con.execute(f"SELECT min(n), max(n), count(*) FROM ({taken})").fetchone()
    assert groups == 100
    assert 20 < low <= high < 80
    before = con.execute(f"{taken} ORDER BY a").fetchall()
    con.execute("UPDATE t SET v = -v")
    assert con.execute(f"{taken} ORDER BY a").fetchall() == before
    counted = con.execute(f"SELECT n FROM ({whole_sql(spec, DUCKDB, 't')})").fetchone()
    assert counted == (sum(n for _, n in before),)


def test_the_smallest_share_is_a_part_and_the_largest_all() -> None:
    assert (sample_parts(1e-12), sample_parts(1.0)) == (1, PARTS)


def test_a_table_as_wide_as_any_database_lets_it_be_has_a_digest(con: Any) -> None:
    names = [f"c{at}" for at in range(1600)]
    con.execute(f"CREATE OR REPLACE TEMP TABLE t ({', '.join(f'{name} BIGINT' for name in names)})")
    con.execute(f"INSERT INTO t SELECT {', '.join(map(str, range(1600)))}")
    spec = DigestSpec(("c0",), tuple(WordColumn(name, Word.INTEGER) for name in names))
    before = con.execute(whole_sql(spec, DUCKDB, "t")).fetchall()
    con.execute("UPDATE t SET c1599 = NULL")
    assert con.execute(whole_sql(spec, DUCKDB, "t")).fetchall() != before
