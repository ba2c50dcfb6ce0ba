"""A difference that was found at an earlier checkpoint, put over what changed since: against plain Python.

Many small histories at once, as a column `case` of the key: a history has an upstream at a checkpoint, a sink that
somebody changed there, and commits since, of which the sink has the changes.
"""

import json
import random
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_cli.contracts import SinkTable, own
from backfill_cli.engine.loop.refills import RATE, Kept, overlaid
from backfill_cli.engine.verify.pacing import pacing_of
from backfill_cli.model.schema import field, schema_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES, KEYS, COMMITS = 300, 6, 4
Row = tuple[int | None, str | None]
"""(v, doc): doc is a value that an update can leave out."""
Rows = dict[int, Row]
TYPES = {"case": "long", "id": "long", "v": "long", "a doc": "string"}
TABLE = SinkTable("t", "t", ("case", "id"), schema_text({n: field(n, k) for n, k in TYPES.items()}))
ARROW = pa.schema(
    [
        (own.OP, pa.string()),
        (own.UNSENT, pa.list_(pa.string())),
        *((n, pa.int64() if k == "long" else pa.string()) for n, k in TYPES.items()),
    ]
)


class History:
    """One upstream and one sink, from the comparison to the newest commit. changes: by commit, net by key."""

    def __init__(self, number: int) -> None:
        self.random = random.Random(number)
        keys = range(KEYS)
        self.upstream: Rows = {key: self.row() for key in keys if self.random.random() < 0.7}
        self.sink = dict(self.upstream)
        for key in keys:
            match self.random.randrange(4):
                case 0:
                    self.sink.pop(key, None)
                case 1:
                    self.sink[key] = self.row()
        self.difference: dict[int, Row | None] = {
            key: self.upstream.get(key) for key in keys if self.upstream.get(key) != self.sink.get(key)
        }
        self.changes = [self.commit(partial=at % 2 == 0) for at in range(COMMITS)]

    def row(self) -> Row:
        return self.random.randrange(100), self.random.choice([None, "a", "b", "c"])

    def commit(self, partial: bool) -> dict[int, tuple[Row | None, bool]]:
        """(the row, or None: deleted; whether it leaves `a doc` out), by key; upstream and sink have them."""
        net: dict[int, tuple[Row | None, bool]] = {}
        for _ in range(self.random.randrange(4)):
            key = self.random.randrange(KEYS)
            old = self.upstream.get(key)
            match self.random.randrange(4):
                case 0:
                    net[key] = None, False
                case 1 if old is not None:  # an update that leaves a value as it is
                    whole = key in net and not net[key][1]
                    net[key] = (self.random.randrange(100), old[1]), partial and not whole
                case 2 if old is not None:  # the key moves
                    to = self.random.randrange(KEYS)
                    net[key] = None, False
                    net[to] = old, False
                case _:
                    net[key] = self.row(), False
            self.upstream = applied(self.upstream, {key: net[key] for key in net})
        self.sink = applied(self.sink, net)
        return net


def applied(rows: Rows, net: Mapping[int, tuple[Row | None, bool]]) -> Rows:
    """As a sink applies net changes; one that leaves a value out of a row that is not there is skipped."""
    after = dict(rows)
    for key, (row, partial) in net.items():
        if row is None:
            after.pop(key, None)
        elif not partial:
            after[key] = row
        elif key in after:
            after[key] = row[0], after[key][1]
    return after


def written(folder: Path, name: str, rows: list[dict[str, Any]], schema: pa.Schema = ARROW) -> str:
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / name)
    return str(folder / name)


def told(case: int, key: int, row: Row | None, partial: bool = False) -> dict[str, Any]:
    v, doc = (None, None) if row is None else row
    unsent = ["a doc"] if partial else None
    told = {"case": case, "id": key, "v": v, "a doc": None if partial else doc}
    return {own.OP: "D" if row is None else "U", own.UNSENT: unsent, **told}


def test_what_changed_since_prevails_and_the_sink_then_equals_the_upstream(
    spark: "SparkSession", tmp_path: Path
) -> None:
    cases = [History(number) for number in range(CASES)]
    found = [told(at, key, row) for at, one in enumerate(cases) for key, row in one.difference.items()]
    rows = spark.read.parquet(written(tmp_path, "found", found)).drop(own.UNSENT)
    kept = []
    for commit in range(COMMITS):
        every = [told(at, k, *change) for at, one in enumerate(cases) for k, change in one.changes[commit].items()]
        folder = tmp_path / "since" / f"{own.EPOCH}={commit + 1}"
        folder.mkdir(parents=True)
        lacks = any(one[own.UNSENT] for one in every)
        file = written(folder, "c-0.parquet", every, ARROW if lacks else ARROW.remove(1))
        kept.append(Kept(commit + 1, (), (file,), ("a doc",) if lacks else (), False, TABLE.schema))
    # Over two commits ahead of the barrier, and then over the others.
    ahead = overlaid(spark, rows, kept[:2], TABLE, ("a doc",))
    ahead.write.parquet(str(tmp_path / "ahead"))
    last = overlaid(spark, spark.read.parquet(str(tmp_path / "ahead")), kept[2:], TABLE, ("a doc",))
    made: list[dict[int, tuple[Row | None, bool]]] = [{} for _ in cases]
    for row in json.loads(json.dumps(last.toArrow().to_pylist())):
        change = None if row[own.OP] == "D" else (row["v"], row["a doc"])
        made[row["case"]][row["id"]] = change, bool(row[own.UNSENT])
    wrong = [at for at, one in enumerate(cases) if applied(one.sink, made[at]) != one.upstream]
    assert not wrong, (len(wrong), vars(cases[wrong[0]]), made[wrong[0]])
    assert all(made[at].keys() == one.difference.keys() for at, one in enumerate(cases))
    assert [bool(one.partial) for one in kept] == [True, False, True, False]
    assert sum(len(one.difference) for one in cases) > CASES  # they did differ


ODD = """
SELECT id, CAST(id AS DECIMAL(38, 9)) AS d, to_date('0001-01-01') AS day,
    named_struct('a b', array(id, NULL)) AS `x.y`, map('k', to_binary('ff', 'hex')) AS m,
    TIMESTAMP'1582-10-04 23:59:59.999999' AS t, TIMESTAMP_NTZ'9999-12-31 23:59:59' AS n,
    CAST('NaN' AS DOUBLE) AS f, CAST(NULL AS STRING) AS s, INTERVAL '3' DAY AS i
FROM range({rows})
"""


def test_rows_that_are_read_at_a_rate_are_the_same_rows(spark: "SparkSession", tmp_path: Path) -> None:
    (tmp_path / RATE).write_text("4000.0")
    pacing = pacing_of(tmp_path)
    assert pacing is not None
    rows = spark.sql(ODD.format(rows=9_000)).repartition(3)
    began_s = time.monotonic()
    slow = pacing.frame(rows)
    assert slow.schema == rows.schema
    found, same = (str(one.toArrow().sort_by("id").to_pylist()) for one in (slow, rows))
    assert found == same
    assert time.monotonic() - began_s >= 1.9, "a second's rows at once, and 5,000 more"
