"""Rows that lack a member, or have one more: exact or set aside, wherever they stand."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backfill_cli.contracts import ArrowTasks, Source, TableSpec
from backfill_cli.contracts.decoder import Asked
from backfill_cli.decode.debezium import decoder as debezium
from backfill_cli.decode.json_rows import decoder as rows_of_json
from backfill_cli.errors import BadData
from backfill_cli.formats.schemas import of_ddl
from backfill_cli.model.position import Position
from backfill_cli.upstreams.files import connector
from oracle import member_inputs
from oracle.inputs import SEED, TIMES
from oracle.member_inputs import FIRST, ODD, TYPES, Answer, File, Topic

ARROW = {"int64": pa.int64(), "string": pa.string()}


def opened(root: Path, on_error: str) -> Source:
    for name in ("snapshot", "changes"):
        (root / name).mkdir(parents=True)
    schema = pa.schema([(name, ARROW[TYPES[name]]) for name in FIRST])
    pq.write_table(schema.empty_table(), root / "snapshot" / "0.parquet")
    told = {
        "on_error": on_error,
        "snapshot": {"path": str(root / "snapshot"), "format": "parquet"},
        "changes": {
            "path": str(root / "changes"),
            "format": "debezium",
            "columns": "source STRING, after BIGINT",
        },
    }
    return connector.open(connector.options.model_validate(told), [TableSpec("t", ("id",))])


def rows_of(tasks: ArrowTasks | None) -> Iterator[dict[str, Any]]:
    assert tasks is not None
    for piece in (piece for part in tasks.parts for piece in part):
        for batch in tasks.make(piece.what):
            yield from batch.to_pylist()


def applied(found: Answer, tasks: ArrowTasks | None) -> None:
    """The changes of files whose names are their numbers."""
    for row in rows_of(tasks):
        kept = row.get("_backfill_quarantined")
        if kept is not None:
            found.bad.append((int(Path(kept["file"]).stem), kept["line"]))
        elif row["_backfill_op"] == "D":
            found.rows.pop(row["id"], None)
        else:
            found.rows[row["id"]] = {n: v for n, v in row.items() if not n.startswith("_backfill_")}


def followed(root: Path, files: list[File], on_error: str = "quarantine") -> tuple[Answer, Answer]:
    """What the changes are as the files land, one by one; and at once, as `verify` reads them."""
    upstream = opened(root, on_error)
    pin = upstream.pin()
    position, schema, found, again = pin.position, pin.schema["t"], Answer(), Answer()
    for number, lines in enumerate(files):
        (root / "changes" / f"{number}.json").write_bytes(b"\n".join(lines) + b"\n")
        try:
            pending = upstream.observe(position, False).pending
        except BadData as refused:
            found.stop = number if f"/{number}.json" in refused.message else -1
            return found, again
        for epoch in pending:
            schema = dict(epoch.schema).get("t", schema)
            up_to = position.join(Position.of(dict(epoch.cursors)))
            applied(found, upstream.change_batches("t", position, up_to, schema, 2))
            position = up_to
    applied(again, upstream.change_batches("t", pin.position, position, schema, 2))
    names = tuple(field["name"] for field in json.loads(schema)["fields"])
    found.columns = again.columns = names
    return found, again


def test_change_files_of_debezium(tmp_path: Path, judged: Callable[[int], None]) -> None:
    count = int(120 * TIMES)
    judged(count)
    wrong = []
    for number in range(count):
        files = member_inputs.drawn(random.Random(SEED * 10_000 + number))
        right = member_inputs.answer(files)
        found, again = followed(tmp_path / str(number), files)
        for told in (found, again) if right.stop is None else (found,):
            columns = dict.fromkeys(right.columns)
            rows = {key: {**columns, **row} for key, row in right.rows.items()}
            mine = {key: {**columns, **row} for key, row in told.rows.items()}
            if (mine, sorted(told.bad), told.stop) != (rows, right.bad, right.stop):
                wrong.append((number, "at once" if told is again else "one by one", told, files, right))
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n\n".join(map(str, wrong[:3]))


SAMPLE = member_inputs.line(random.Random(1), FIRST, True, 0.0)
WHOLE = (frozenset({ODD}), frozenset(FIRST) - {"before"})
TOPICS = {
    "declared": (Topic(None, frozenset()), True, None, ()),
    "by blocks": (Topic(frozenset(FIRST), frozenset(), True), False, None, (SAMPLE,)),
    "a snapshot's": (Topic(WHOLE[0] | set(FIRST), WHOLE[1]), True, WHOLE, ()),
}
"""What holds, whether the columns are declared, `Asked.whole`, and samples."""


def decoded(decoder: Any, records: list[bytes], declared: bool, whole: Any, samples: Sequence[bytes]) -> list[Any]:
    """Of each record its row, empty for a delete, None for an error; singly, in sevens and at once."""
    kinds = {"int64": "BIGINT", "string": "STRING"}
    columns = of_ddl(", ".join(f"`{name}` {kinds[TYPES[name]]}" for name in FIRST)) if declared else None
    asked = Asked("topic 't'", "t", "t", ("id",), columns, {}, "upstream.value", whole)
    found = decoder.columns(asked, lambda: samples)
    decode = decoder.open(asked, found.columns, found.facts).decode(lambda: samples)
    told: list[Any] = []
    for size in (1, 7, len(records)):
        rows: list[Any] = [None] * len(records)
        for begin in range(0, len(records), size):
            some = records[begin : begin + size]
            made = decode(some)
            of = range(len(some)) if made.record is None else made.record.to_pylist()
            ops = made.op.to_pylist() if made.op is not None else ["U"] * len(of)
            errors = made.error.to_pylist() if made.error is not None else [None] * len(of)
            for n, (at, op, error) in enumerate(zip(of, ops, errors, strict=True)):
                if error is None:
                    row = {name: made.columns[name][n].as_py() for name in FIRST}
                    rows[begin + at] = row if op == "U" else {}
        told.append(rows)
    return told


@pytest.mark.parametrize("form", TOPICS)
def test_records_of_topics(form: str, judged: Callable[[int], None]) -> None:
    right_by, declared, whole, samples = TOPICS[form]
    chance = random.Random(SEED)
    records = [member_inputs.line(chance, FIRST, chance.random() < 0.4, 0.2) for _ in range(int(100 * TIMES))]
    right = [right_by.row(json.loads(record)) for record in records]
    judged(len(records))
    for told in decoded(debezium, records, declared, whole, samples):
        wrong = [one for one in zip(told, right, records, strict=True) if one[0] != one[1]]
        assert not wrong, f"{len(wrong)}:\n" + "\n\n".join(map(str, wrong[:5]))


@pytest.mark.parametrize("whole", [None, WHOLE], ids=["events", "a snapshot's"])
def test_rows_of_json(whole: Any, judged: Callable[[int], None]) -> None:
    """Of topics, snapshots and change feeds: without `whole` a column without a member is NULL."""
    chance = random.Random(SEED)
    drawn = [json.loads(member_inputs.line(chance, FIRST, False, 0.2)) for _ in range(int(200 * TIMES))]
    rows = [one["after"] for one in drawn if one["after"] is not None]
    right = [
        None if whole and (set(row) - whole[0] - set(FIRST) or whole[1] - set(row)) else
        {name: row.get(name) for name in FIRST}
        for row in rows
    ]  # fmt: skip
    judged(len(rows))
    for told in decoded(rows_of_json, [json.dumps(row).encode() for row in rows], True, whole, ()):
        wrong = [one for one in zip(told, right, rows, strict=True) if one[0] != one[1]]
        assert not wrong, f"{len(wrong)}:\n" + "\n\n".join(map(str, wrong[:5]))
