"""What a `where` and a `select` save upstream: a job that keeps 5 % of the rows and 3 of 20 columns."""

import statistics
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb
from measure import Figure
from pgbench import Database, PgJob
from postgres_ways import caught_up

TABLE = "wide"
MADE = """
CREATE TABLE wide (id bigint PRIMARY KEY, kind int, day date, {columns});
INSERT INTO wide SELECT g, g % 20, date '2024-01-01' + (g % 900)::int, {values} FROM generate_series(1, {rows}) g;
ALTER TABLE wide REPLICA IDENTITY FULL;
ANALYZE wide
"""
SHAPE = """
[transform]
select = ["id", "day", "c1 AS note"]
where = "kind = 7 AND day >= '2024-01-01'"
"""
NOT_PUSHED = SHAPE.replace("kind = 7", "kind + 0 = 7 AND '\\\"' = '\\\"'")
"""The same rows and columns; but a quotation mark hides from us what the expressions name."""


def filtered(db: Database, count: int) -> list[Figure]:
    """Time and bytes ÷ those of a job that reads everything and leaves the rest to Spark."""
    rows = db.rows // 2
    columns = ", ".join(f"c{n} text" for n in range(1, 18))
    values = ", ".join(f"'value {n} of ' || g" for n in range(1, 18))
    db(*MADE.format(rows=rows, columns=columns, values=values).strip().split(";\n"))
    times, sizes = [], []
    for number in range(count + 1):
        (whole_s, whole), (part_s, part) = (_copied(db, rows, shape) for shape in (NOT_PUSHED, SHAPE))
        told = f"all {whole_s:.2f} s and {whole / 1e6:.0f} MB, pushed {part_s:.2f} s and {part / 1e6:.1f} MB"
        print(f"  round {number}: {told}", file=sys.stderr)
        if number:
            times.append(part_s / whole_s)
            sizes.append(part / whole)
    time, size = statistics.median(times), statistics.median(sizes)
    note = f"{rows:,} rows; the last round: {told}"
    return [
        Figure(
            "5 % of rows, 3 of 20 columns: time ÷ not pushed", time, "", "≤ 0.5", time <= 0.5, tuple(times), note
        ),
        Figure("the same, bytes from the server ÷ not pushed", size, "", "≤ 0.02", size <= 0.02, tuple(sizes)),
    ]


def _copied(db: Database, rows: int, shape: str) -> tuple[float, int]:
    """Seconds for the whole job, and the bytes of the rows that the server sent."""
    job = PgJob(db.folder / "filtered", db.folder, tables=(TABLE,))
    job.forget()
    db.forget_slot()
    job.write()
    job.config.write_text(job.config.read_text() + shape)
    took = caught_up(job)
    with duckdb.connect(str(job.warehouse), read_only=True) as con:
        found = con.execute(f"SELECT count(*), count(DISTINCT id) FROM {TABLE}").fetchone()
    assert found == (rows // 20, rows // 20), found
    with _read(job) as sizes:
        return took, sum(sizes)


@contextmanager
def _read(job: PgJob) -> Iterator[Iterator[int]]:
    """The sizes of all batches of the table that a job's chunks read."""
    from backfill_cli.config import load
    from backfill_cli.model.plan import SnapshotRead

    upstream = load(job.config).open_upstream()
    try:
        splits = upstream.pin().splits
        reads = upstream.closed(TABLE, [SnapshotRead(TABLE, split.id, limit_rows=10_000_000) for split in splits])
        tasks = upstream.batches(TABLE, reads, 1)
        assert tasks is not None
        yield (batch.nbytes for part in tasks.parts for piece in part for batch in tasks.make(piece.what))
    finally:
        upstream.close()
