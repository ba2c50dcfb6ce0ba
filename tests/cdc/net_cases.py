"""Changes of some keys, some lacking columns: as frames, and applied one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = (
    "_backfill_op STRING, _backfill_seq BIGINT, _backfill_ms BIGINT, _backfill_unsent ARRAY<STRING>, "
    "n INT, `a key` INT, v INT, big STRING, `a doc` STRING"
)
KEY = ["n", "a key"]
MAY_LACK = ("big", "a doc")


@dataclass(frozen=True)
class Change:
    """A change of a key: the row after it, without the columns that it lacks; or the key of a deleted row."""

    op: str
    key: int
    v: int | None = None
    big: str | None = None
    doc: str | None = None
    lacks: tuple[str, ...] = ()


Net = tuple[int | None, str | None, str | None, tuple[str, ...]] | None
"""v, big, doc and the columns still missing; None for a deleted key."""


def in_order(changes: Sequence[Change]) -> dict[int, Net]:
    """The reference: one change after the other, each missing column taken from the key's previous row."""
    net: dict[int, Net] = {}
    for c in changes:
        if c.op == "D":
            net[c.key] = None
            continue
        held, lacks = {"big": c.big, "a doc": c.doc}, set(c.lacks)
        before = net.get(c.key)
        if before is not None:
            known = {"big": before[1], "a doc": before[2]}
            held |= {name: known[name] for name in c.lacks}
            lacks &= set(before[3])
        for name in lacks:
            held[name] = None
        net[c.key] = (c.v, held["big"], held["a doc"], tuple(sorted(lacks)))
    return net


def frame(spark: "SparkSession", cases: Sequence[Sequence[Change]]) -> "DataFrame":
    """Each case's changes; the rows themselves in any order. Missing columns hold arbitrary values."""
    rows: list[Any] = []
    for case, changes in enumerate(cases):
        for i, c in enumerate(changes):
            big, doc = ("?" if name in c.lacks else value for name, value in (("big", c.big), ("a doc", c.doc)))
            lacks = list(c.lacks) if c.lacks or i % 2 else None
            row = (c.v, big, doc) if c.op == "U" else (None, None, None)
            rows.append((c.op, i, 1, lacks if c.op == "U" else None, case, c.key, *row))
    rows.sort(key=lambda row: (row[5], -row[1]))
    return spark.createDataFrame(rows, SCHEMA)


texts = st.none() | st.sampled_from(("", "x", "long"))
changes = st.lists(
    st.builds(
        Change,
        op=st.sampled_from("UUUUD"),
        key=st.integers(0, 2),
        v=st.none() | st.integers(-2, 2),
        big=texts,
        doc=texts,
        lacks=st.sampled_from(((), (), ("big",), ("a doc",), MAY_LACK, ("a doc", "big"))),
    ),
    max_size=9,
)
CASES = 60  # in one Spark job
many = st.lists(changes, min_size=CASES, max_size=CASES)
few = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking would run a Spark job for each step
)


def found(rows: Sequence[Any], names: Sequence[str]) -> list[dict[int, Any]]:
    """By case: key -> the named columns, those that a row lacks None, and which these are; None for a 'D'."""
    cases: list[dict[int, Any]] = [{} for _ in range(CASES)]
    for row in rows:
        at = row["a key"] if "a key" in row.asDict() else row["id"]
        assert at not in cases[row["n"]], "a key stands once"
        lacks = tuple(sorted(row["_backfill_unsent"] or ()))
        values = tuple(None if name in lacks else row[name] for name in names)
        cases[row["n"]][at] = (*values, lacks) if row["_backfill_op"] == "U" else None
    return cases
