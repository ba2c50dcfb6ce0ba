"""An upstream that keeps changing: orders in Parquet, and a writer that adds Debezium change files.

    python scripts/demo_upstream.py snapshot FOLDER --rows 200000 --files 8
    python scripts/demo_upstream.py write FOLDER --changes 200 --every 0.5

Used by scripts/demo, the benchmarks and tests. All columns are computed by Arrow; rows are a function of their id
and version, so two runs make the same data. A change file appears complete: it is renamed from `*.tmp`.
"""

import argparse
import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

STATUSES = pa.array(["new", "paid", "packed", "sent", "returned"])
BEGIN_US = 1_760_000_000_000_000
"""2025-10-09: `updated_at` of version 0 of order 0."""
NEW_IDS = 1_000_000_000
"""Orders that the writer adds are numbered from here."""


def orders(ids: pa.Int64Array, version: int) -> pa.Table:
    """`(id BIGINT, customer_id BIGINT, status STRING, amount DECIMAL(10,2), updated_at TIMESTAMP)`."""
    hundredths = _modulo(pc.add(pc.multiply(ids, 31), version * 1709), 1_000_000)
    updated = pc.add(pc.multiply(ids, 1_000_003), BEGIN_US + version * 60_000_000)
    return pa.table(
        {
            "id": ids,
            "customer_id": _modulo(pc.multiply(ids, 7919), 50_000),
            "status": STATUSES.take(_modulo(pc.add(ids, version), 5)),
            "amount": _as_decimal(hundredths),
            "updated_at": updated.cast(pa.timestamp("us", tz="UTC")),
        }
    )


def write_snapshot(folder: Path, rows: int, files: int, row_group_rows: int = 100_000) -> None:
    """Orders 0 to `rows` in `files` Parquet files of about the same size, in key order."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        first, end = rows * number // files, rows * (number + 1) // files
        part = orders(pa.array(range(first, end), pa.int64()), 0)
        pq.write_table(part, folder / f"orders-{number:04d}.parquet", row_group_size=row_group_rows)


def changes(sequence: int, count: int, rows: int, now_ms: int) -> bytes:
    """One change file: about 70 % updates, 20 % inserts, 10 % deletes of `rows` orders, as Debezium JSON lines."""
    place = pa.array(range(count), pa.int64())
    drawn = _modulo(pc.add(pc.multiply(place, 982_451_653), sequence * 15_485_863), rows)
    kind = _modulo(place, 10)
    tens = pc.multiply(pc.divide(drawn, 10), 10)
    is_insert, is_delete = pc.less(kind, 2), pc.equal(kind, 2)
    new_ids = pc.add(place, NEW_IDS + sequence * count)
    # Updates and deletes affect different orders, so that no deleted order comes back.
    ids = pc.if_else(is_insert, new_ids, pc.if_else(is_delete, tens, pc.add(tens, pc.subtract(kind, 2))))
    after = _image(orders(ids, sequence + 1))
    key = pc.binary_join_element_wise('{"id":', pc.cast(ids, pa.string()), "}", "")
    lines = pc.binary_join_element_wise(
        '{"before":',
        pc.if_else(is_insert, "null", key),
        ',"after":',
        pc.if_else(is_delete, "null", after),
        ',"op":"',
        pc.if_else(is_insert, "c", pc.if_else(is_delete, "d", "u")),
        f'","ts_ms":{now_ms},"source":{{"ts_ms":{now_ms}}}}}\n',
        "",
    )
    return "".join(lines.to_pylist()).encode()


def land(folder: Path, sequence: int, content: bytes) -> Path:
    """The change file with this number, complete and durable from the moment its name appears."""
    target = folder / f"{sequence:012d}.json"
    fresh = target.with_suffix(".tmp")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(target)
    return target


def keep_writing(folder: Path, count: int, every_s: float, rows: int) -> None:
    """Writes a change file of `count` changes every `every_s` seconds, until the process is ended."""
    folder.mkdir(parents=True, exist_ok=True)
    sequence = max((int(file.stem) for file in folder.glob("*.json")), default=0)
    due = time.monotonic()
    while True:
        sequence += 1
        land(folder, sequence, changes(sequence, count, rows, time.time_ns() // 1_000_000))
        due += every_s
        time.sleep(max(0.0, due - time.monotonic()))


def _modulo(values: pa.Int64Array, by: int) -> pa.Int64Array:
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))


def _as_decimal(hundredths: pa.Int64Array) -> pa.Array:
    cent = pa.scalar("0.01").cast(pa.decimal128(3, 2))
    return pc.multiply(hundredths.cast(pa.decimal128(19, 0)), cent).cast(pa.decimal128(10, 2))


def _image(table: pa.Table) -> pa.ChunkedArray:
    """Each row as JSON, as Debezium writes it with decimals as text and timestamps in microseconds."""
    micros = table["updated_at"].cast(pa.int64())
    return pc.binary_join_element_wise(
        '{"id":',
        pc.cast(table["id"], pa.string()),
        ',"customer_id":',
        pc.cast(table["customer_id"], pa.string()),
        ',"status":"',
        table["status"],
        '","amount":"',
        pc.cast(table["amount"], pa.string()),
        '","updated_at":',
        pc.cast(micros, pa.string()),
        "}",
        "",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True, dest="verb")
    snapshot = verbs.add_parser("snapshot", help="write the orders once")
    snapshot.add_argument("folder", type=Path)
    snapshot.add_argument("--rows", type=int, default=200_000)
    snapshot.add_argument("--files", type=int, default=8)
    write = verbs.add_parser("write", help="write change files until ended")
    write.add_argument("folder", type=Path)
    write.add_argument("--rows", type=int, default=200_000, help="number of orders in the snapshot")
    write.add_argument("--changes", type=int, default=200, help="changes per file")
    write.add_argument("--every", type=float, default=0.5, help="seconds between files")
    given = parser.parse_args()
    if given.verb == "snapshot":
        write_snapshot(given.folder, given.rows, given.files)
    else:
        keep_writing(given.folder, given.changes, given.every, given.rows)


if __name__ == "__main__":
    main()
