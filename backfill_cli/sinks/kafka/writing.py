"""An epoch in topics: one task writes the rows of all its tables and the job's new state in one transaction.

The task reads the staged files itself and makes records of them by columns; the client sends them from threads of
its own. Made in another thread of Python, they would cost a fifth more CPU. Spark may run the task twice (a retry,
speculation): each run opens the job's transaction first, which ends that of any other run, and then finds in the
job's state whether the epoch is there already.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import gone, is_due, marker_gone
from backfill_cli.errors import START_OVER, BadData, StateConflict, in_config, of_table
from backfill_cli.failpoint import hit
from backfill_cli.formats.compute import pc
from backfill_cli.kafka.admin import Admin, Found
from backfill_cli.kafka.connection import Connection
from backfill_cli.model.plan import StagedFile, StagedTable
from backfill_cli.sinks.kafka import state
from backfill_cli.sinks.kafka.encodings import Records
from backfill_cli.sinks.kafka.state import Held, JobRecord, StateTopic
from backfill_cli.sinks.kafka.transaction import Transaction

HOLDER = "state topic"
JOB, EPOCH, OP = "backfill.job", "backfill.epoch", "backfill.op"
"""Headers of the records."""
SNAPSHOT, UPSERT, DELETE = b"r", b"u", b"d"
"""Values of OP, in Debezium's letters; a changed row was inserted or updated."""

_ROWS, _BYTES = 10_000, 8 << 20
"""Of a batch; fewer rows if they are large."""


@dataclass(frozen=True, slots=True)
class Work:
    """What the task needs. It is pickled. state_topic: also the transaction's id. records: by table."""

    connection: Connection
    state_topic: str
    timeout_s: float
    accept_growth: bool
    commit: EpochCommit
    records: Mapping[str, Records]


@dataclass(frozen=True, slots=True)
class Sent:
    """Records of one op. values: None for tombstones."""

    op: bytes
    keys: list[bytes]
    values: Sequence[bytes | None]


def apply(work: Work, _part: int) -> Iterator[pa.RecordBatch]:
    """The epoch is in the topics, once. Runs in a worker; one row: how many records were written."""
    written = 0
    with Transaction(work.connection, work.state_topic, work.timeout_s) as transaction:
        admin = Admin(work.connection)
        topic = StateTopic(admin, work.state_topic)
        record = topic.newest()
        due = tables_due(work.commit, record)
        if record is not None and due:
            held = [record.tables[one.name] for one in due]
            refuse_changed(work.commit.job, admin, held, work.accept_growth)
            transaction.begin()
            moved = {}
            for table in due:
                with of_table(table.name):
                    moved[table.name] = _write(
                        transaction, work.commit, table, record.tables[table.name], work.records[table.name]
                    )
                written += work.commit.staged.tables.get(table.name, StagedTable()).rows
            topic.send(transaction, state.of_epoch(work.commit, record, moved))
            hit("sink-before-commit")
            transaction.flush()
            # a broker that makes topics for whoever writes has made one again that was deleted meanwhile
            refuse_changed(work.commit.job, admin, held, work.accept_growth)
            topic.commit(transaction)
            hit("sink-before-close")
    yield pa.RecordBatch.from_pydict({"rows": [written]})


def tables_due(commit: EpochCommit, record: JobRecord | None) -> list[SinkTable]:
    """The tables that the epoch has still to be applied to. Raises as `contracts.Sink.commit` does."""
    tables = [one for one in commit.tables if commit.only is None or one.name in commit.only]
    if record is None:
        raise marker_gone(commit, tables[0].name, HOLDER)
    markers = record.markers
    return [one for one in tables if is_due(commit, one.name, markers.get(one.name), HOLDER)]


def refuse_changed(job: str, admin: Admin, held: Sequence[Held], accept_growth: bool) -> None:
    """The topics are those that the job took. Raises StateConflict for one that is gone, replaced or larger."""
    there = admin.found(one.topic for one in held)
    for one in held:
        found = there.get(one.topic)
        if found is None:
            raise gone(f"topic '{one.topic}'", job, one.epoch or None)
        if found.topic_id != one.topic_id:
            raise recreated(job, one, found)
        if len(found.partitions) != one.partitions and not accept_growth:
            raise StateConflict(
                f"topic '{one.topic}' has {len(found.partitions)} partitions; it had {one.partitions} when job "
                f"{job!r} took it: newer records of a key would go to another partition than older ones",
                in_config("if its readers need no order between them, set sink.accept_growth = true; otherwise ")
                + START_OVER,
            )


def recreated(job: str, held: Held, found: Found) -> StateConflict:
    return StateConflict(
        f"topic '{held.topic}' was recreated: its id is {found.topic_id}, but was {held.topic_id} when job "
        f"{job!r} took it",
        START_OVER,
    )


def _write(transaction: Transaction, commit: EpochCommit, table: SinkTable, held: Held, records: Records) -> Held:
    """The epoch's rows of the table are on their way; what the job then holds."""
    staged = commit.staged.tables.get(table.name) or StagedTable()
    if staged.truncated:
        raise BadData(
            f"table {table.name!r} was truncated upstream, and topic '{held.topic}' cannot be emptied: "
            "its readers would keep the rows",
            START_OVER,
        )
    common = [(JOB, commit.job.encode()), (EPOCH, str(commit.epoch).encode())]
    headers = {op: [*common, (OP, op)] for op in (SNAPSHOT, UPSERT, DELETE)}
    counts = dict.fromkeys(headers, 0)
    for sent in _sent(Path(commit.folder), staged, records):
        transaction.send(held.topic, sent.values, sent.keys, headers[sent.op])
        counts[sent.op] += len(sent.keys)
    _refuse_miscounted(table, counts, staged)
    return replace(
        held,
        epoch=commit.epoch,
        token=commit.token,
        attempt=commit.attempt,
        rows=held.rows + staged.rows,
        changes=held.changes + staged.changed + staged.deleted,
    )


def _refuse_miscounted(table: SinkTable, counts: Mapping[bytes, int], staged: StagedTable) -> None:
    wanted = {SNAPSHOT: staged.rows, UPSERT: staged.changed, DELETE: staged.deleted}
    if counts != wanted:
        raise BadData(
            f"table {table.name!r}: the staged files hold {dict(counts)} rows, but {wanted} were staged",
            START_OVER,
        )


def _sent(folder: Path, staged: StagedTable, records: Records) -> Iterator[Sent]:
    """The table's records of the epoch: snapshot rows first, then changes, of which a key has one."""
    for batch in batches(folder, staged.inserts):
        yield Sent(SNAPSHOT, records.keys.of(batch), records.values.of(batch))
    for batch in batches(folder, staged.changes):
        is_row = pc.equal(batch.column(own.OP), "U")
        rows, gone = batch.filter(is_row), batch.filter(pc.invert(is_row))
        if rows.num_rows:
            yield Sent(UPSERT, records.keys.of(rows), records.values.of(rows))
        if gone.num_rows:
            yield Sent(DELETE, records.keys.of(gone), [None] * gone.num_rows)


def batches(folder: Path, files: Sequence[StagedFile]) -> Iterator[pa.RecordBatch]:
    for one in files:
        with pq.ParquetFile(folder / one.path) as file:
            rows = file.metadata.num_rows
            size = sum(file.metadata.row_group(at).total_byte_size for at in range(file.num_row_groups))
            fits = _BYTES * max(1, rows) // max(1, size)
            yield from file.iter_batches(batch_size=max(1, min(_ROWS, fits)), use_threads=False)
