"""Changes that several tasks of a topic netted are net together: each key's last one by its place in the log."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.contracts import RangeTasks, TakenTable, own
from backfill_cli.engine.staging import ranges

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEQ = pa.struct([("kafka_partition", pa.int32()), ("kafka_offset", pa.int64()), (own.SUB, pa.int32())])
ROWS = pa.schema(
    [
        (own.OP, pa.string()),
        (own.SEQ, SEQ),
        (own.MS, pa.int64()),
        (own.ERROR, pa.string()),
        (own.RAW, pa.binary()),
        ("kafka_partition", pa.int32()),
        ("kafka_offset", pa.int64()),
        ("k", pa.float64()),
        ("s", pa.string()),
        ("n", pa.int64()),
    ]
)
KEYS = (0.0, -0.0, float("nan"), 1.5, -1.5, float("inf"))
SCHEMA = json.dumps({"type": "struct", "fields": []})

Change = tuple[str, int, int, float, str, int]
"""(op, partition, offset, the key's two columns, a value)"""


def drawn(chance: random.Random, count: int) -> list[Change]:
    """Changes of few keys, each of which may be in any partition."""
    of = (
        (chance.choice("UUD"), chance.randrange(3), at, chance.choice(KEYS), chance.choice("ab"), at)
        for at in range(count)
    )
    return sorted(of, key=lambda one: one[1:3])


def batches(part: Sequence[tuple[int, Sequence[Change]]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Runs in a worker: three changes in each batch."""
    for read, changes in part:
        for begin in range(0, len(changes), 3):
            some = changes[begin : begin + 3]
            rows = [
                {own.OP: op, own.SEQ: {"kafka_partition": p, "kafka_offset": at, own.SUB: 0}, own.MS: at}
                | {"kafka_partition": p, "kafka_offset": at, "k": k, "s": s, "n": n}
                for op, p, at, k, s, n in some
            ]
            yield read, pa.RecordBatch.from_pylist(rows, ROWS)


def last(changes: Sequence[Change]) -> dict[Any, tuple[str, int]]:
    """By plain Python: (op, n) of the change of each key that is the last one by partition and offset."""
    return {(repr(k + 0.0), s): (op, n) for op, _, _, k, s, n in sorted(changes, key=lambda one: one[1:3])}


def by_itself(_: Any, make: Callable[[Any], Any], parts: Sequence[Any]) -> list[Any]:
    """What workers tell."""
    return [json.loads(json.dumps(make(part))) for part in parts]


@pytest.mark.parametrize("held", [1, 400, 1 << 28], ids=["each", "some", "all"])
@pytest.mark.parametrize("tasks", [1, 2, 5])
def test_the_last_change_of_each_key_is_left_however_many_tasks_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, held: int
) -> None:
    """held: bytes that a task holds before it writes."""
    monkeypatch.setattr(ranges, "NET_BYTES", held)
    monkeypatch.setattr(ranges, "HERE", -1)
    monkeypatch.setattr(ranges, "told_by", by_itself)
    chance = random.Random(tasks * 1000 + held % 997)
    changes = drawn(chance, 60)
    cut = sorted(chance.sample(range(1, len(changes)), tasks - 1))
    spans = [changes[begin:end] for begin, end in zip([0, *cut], [*cut, len(changes)], strict=True)]
    chance.shuffle(spans)
    parts = tuple(((number, span),) for number, span in enumerate(spans))
    wanted = RangeTasks(batches, parts, {"t": SCHEMA}, len(changes))
    target = ranges.target(("k", "s"), tmp_path)
    place = ("kafka_partition", "kafka_offset")
    done = ranges.write(cast("SparkSession", None), wanted, {"t": target}, ["t"] * tasks, place, False, tmp_path)
    found = done.changes["t"]
    tables = [pq.read_table(tmp_path / "taken" / file.path) for file in found.files]
    rows = [row for table in tables for row in table.to_pylist()]
    assert found.netted
    assert {(repr(row["k"] + 0.0), row["s"]): (row[own.OP], row["n"]) for row in rows} == last(changes)
    assert len(rows) == len(last(changes))
    assert found.changed == sum(row[own.OP] == "U" for row in rows)
    assert found.changed + found.deleted == len(rows)
    assert sum(done.rows.values()) == len(changes)
    assert not {own.SEQ, own.MS} & set(tables[0].column_names)
    assert sorted(path.name for path in (tmp_path / "taken").iterdir()) == ["apart", "net"]
    assert len(list((tmp_path / "taken" / "net").iterdir())) == len(found.files)


def test_a_table_of_which_no_task_has_a_row_has_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "HERE", -1)
    monkeypatch.setattr(ranges, "told_by", by_itself)
    changes = drawn(random.Random(1), 20)
    wanted = RangeTasks(batches, (((0, changes[:9]),), ((0, changes[9:]),)), {"t": SCHEMA, "u": SCHEMA}, 20)
    targets = dict.fromkeys(("t", "u"), ranges.target(("k", "s"), tmp_path))
    place = ("kafka_partition", "kafka_offset")
    done = ranges.write(cast("SparkSession", None), wanted, targets, ["t", "u"], place, False, tmp_path)
    assert done.changes["u"] == TakenTable()
    assert done.changes["t"].netted
    assert done.changes["t"].files
