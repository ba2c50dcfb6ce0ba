"""What a job keeps in a topic of its own: who has it, what each of its topics holds, and what it resumes from.

The topic is compacted; only its first partition is used, however many it has. All records are written in
transactions of the job, those of an epoch in the one that has its rows; the last record of each is the job's, so
that the newest one is found at the end:

    job                     who has the job, its topics, their markers; the last record of each transaction
    schema:<table>          the table's columns, Spark schema as JSON
    definition:<n>          what a lost catalog is rebuilt from, in pieces; written when it changes
    checkpoint              that of the last epoch, without its splits
    split:["table","id"]    the progress of a split; written when it moved
"""

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from backfill_cli.contracts import EpochCommit, SavedJob
from backfill_cli.contracts.refusals import newer_layout
from backfill_cli.errors import RESTORE, BackfillError, Fatal
from backfill_cli.kafka.admin import Admin
from backfill_cli.kafka.edge import client
from backfill_cli.kafka.messages import messages
from backfill_cli.kafka.ranges import Range
from backfill_cli.model.checkpoint import Checkpoint, Marker, Owner
from backfill_cli.model.codec import decode, encode
from backfill_cli.model.split import SplitProgress
from backfill_cli.sinks.kafka.transaction import Transaction

LAYOUT = 1
JOB, CHECKPOINT, SCHEMA, DEFINITION, SPLIT = b"job", b"checkpoint", b"schema:", b"definition:", b"split:"
PIECE = 500_000
"""Bytes of a piece of the definition: a record holds a megabyte, unless the cluster allows more."""

SETTINGS = {
    "cleanup.policy": "compact",
    # closed early, as only closed segments are compacted: a start reads all that is left
    "segment.bytes": str(16 << 20),
    "segment.ms": str(3_600_000),
    "min.cleanable.dirty.ratio": "0.1",
}
_TAIL = 64
_SETTLED_S = 3.0
"""A commit is visible some ms after it was acknowledged. What stays open is of a process that died."""


@dataclass(frozen=True, slots=True)
class Held:
    """A topic of the job and its marker.

    partitions, topic_id: as they were when the job took it. begins: where its partitions ended then.
    rows: how many snapshot rows the job has written to it. changes: how many changes.
    """

    topic: str
    topic_id: str
    partitions: int
    begins: Mapping[int, int]
    epoch: int = 0
    token: int = 0
    attempt: str = ""
    rows: int = 0
    changes: int = 0

    @property
    def marker(self) -> Marker:
        return Marker(self.epoch, self.token, self.attempt)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """The job's record. definition: the digest of the one that is kept, and its number of pieces."""

    job: str
    tables: Mapping[str, Held] = field(default_factory=dict)
    owner: Owner | None = None
    definition: tuple[str, int] = ("", 0)
    layout: int = LAYOUT

    @property
    def markers(self) -> dict[str, Marker]:
        return {name: held.marker for name, held in self.tables.items()}

    def with_tables(self, changed: Mapping[str, Held]) -> "JobRecord":
        return replace(self, tables={**self.tables, **changed})


Records = Sequence[tuple[bytes, bytes]]
"""(key, value) in order"""


class StateTopic:
    """The topic of one job, which may not exist."""

    def __init__(self, admin: Admin, name: str) -> None:
        self.name, self._admin = name, admin

    def exists(self) -> bool:
        return self.name in self._admin.found([self.name])

    def newest(self) -> JobRecord | None:
        """The job's record, as of the last commit; None if there is no topic, or nothing in it."""
        for tail in self._tails():
            found = [value for key, value in tail if key == JOB]
            if found:
                return self._decoded(found[-1])
        return None

    def of(self, job: str | None) -> JobRecord | None:
        """The record, if the topic is this job's state by its last record, or any job's; None for any other topic.

        That of other programs is not read to its begin; nor waited for while they write to it, if one of its last
        records is committed.
        """
        for settled in (False, True):
            last = self.last(settled)
            if last is not None and not _is_of(job, *last):
                return None
        return None if last is None else self._decoded(last[1])

    def last(self, settled: bool = True) -> tuple[bytes, bytes] | None:
        """The last record; None if there is no topic, or nothing in it. settled: see `_bounds`."""
        return next((tail[-1] for tail in self._tails(settled) if tail), None)

    def _tails(self, settled: bool = True) -> Iterator[list[tuple[bytes, bytes]]]:
        """The records at the end, then more of them, up to all."""
        if not self.exists():
            return
        begin, end = self._bounds(settled)
        first, tail = end, _TAIL
        while first > begin:
            first, tail = max(begin, end - tail), tail * 8
            yield list(self._read(first, end))

    def everything(self) -> dict[bytes, bytes]:
        """The newest record of each key."""
        return dict(self._read(*self._bounds())) if self.exists() else {}

    def saved(self) -> SavedJob | None:
        """What the last epoch kept, all splits included; None before the first."""
        held = self.everything()
        if CHECKPOINT not in held:
            return None
        _, pieces = self._decoded(held[JOB]).definition
        splits = {
            tuple(json.loads(key.removeprefix(SPLIT))): decode(SplitProgress, value.decode())
            for key, value in held.items()
            if key.startswith(SPLIT)
        }
        try:
            definition = b"".join(held[_piece(number)] for number in range(pieces)).decode()
        except KeyError:
            raise self._damaged("a piece of the job's definition is gone") from None
        checkpoint = decode(Checkpoint, held[CHECKPOINT].decode())
        return SavedJob(definition, replace(checkpoint, splits=splits))

    def send(self, transaction: Transaction, records: Records) -> None:
        transaction.send_in_order(self.name, records)

    def commit(self, transaction: Transaction) -> None:
        """What was sent is in this topic, and all else that the transaction has in others; both are visible."""
        transaction.commit()
        self._bounds()

    def _bounds(self, settled: bool = True) -> tuple[int, int]:
        """(first offset, end of what is committed); settled: no commit is on its way, or its process is dead."""
        place = (self.name, 0)
        until = time.monotonic() + _SETTLED_S
        while True:
            last = self._admin.ends([place], committed=False)[place]
            end = self._admin.ends([place], committed=True)[place]
            if not settled or end >= last or time.monotonic() > until:
                return self._admin.begins([place])[place], end
            time.sleep(0.01)

    def _read(self, first: int, end: int) -> Iterator[tuple[bytes, bytes]]:
        if first >= end:
            return
        of = client().Message
        for found in messages(self._admin.connection, self.name, Range(0, 0, first, end)):
            yield from ((of.key(one), of.value(one)) for one in found)

    def _decoded(self, value: bytes) -> JobRecord:
        try:
            layout = json.loads(value)["layout"]
            if layout > LAYOUT:
                raise newer_layout(f"topic '{self.name}'", layout, LAYOUT)
            return decode(JobRecord, value.decode())
        except (ValueError, KeyError, TypeError) as exc:
            raise self._damaged(f"not a record of a job: {value[:100]!r}") from exc

    def _damaged(self, why: str) -> BackfillError:
        return Fatal(f"topic '{self.name}': {why}", RESTORE)


def of_epoch(commit: EpochCommit, before: JobRecord, written: Mapping[str, Held]) -> Records:
    """The records of an epoch's state, the job's last. written: the tables that the epoch was applied to."""
    checkpoint = commit.saved.checkpoint
    bare = replace(checkpoint, splits={}, plan=None, staged=None)
    records = [(_split(key), encode(split).encode()) for key, split in checkpoint.splits.items()]
    records.append((CHECKPOINT, encode(bare).encode()))
    told = commit.saved.definition.encode()
    digest = hashlib.sha256(told).hexdigest()
    definition = before.definition
    if definition[0] != digest:
        pieces = [told[at : at + PIECE] for at in range(0, len(told), PIECE)]
        records += [(_piece(number), piece) for number, piece in enumerate(pieces)]
        definition = (digest, len(pieces))
    return [*records, of_job(replace(before.with_tables(written), definition=definition))]


def of_job(record: JobRecord) -> tuple[bytes, bytes]:
    return JOB, encode(record).encode()


def of_schema(table: str, schema: str) -> tuple[bytes, bytes]:
    return SCHEMA + table.encode(), schema.encode()


def schemas(held: Mapping[bytes, bytes]) -> dict[str, str]:
    """table -> its Spark schema, of `everything`."""
    return {
        key.removeprefix(SCHEMA).decode(): value.decode() for key, value in held.items() if key.startswith(SCHEMA)
    }


def _is_of(job: str | None, key: bytes, value: bytes | None) -> bool:
    with suppress(ValueError, RecursionError):
        told = json.loads(value or b"0") if key == JOB else None
        return isinstance(told, dict) and "job" in told and job in (None, told["job"])
    return False


def _piece(number: int) -> bytes:
    return DEFINITION + str(number).encode()


def _split(key: Any) -> bytes:
    return SPLIT + json.dumps(list(key), ensure_ascii=False, separators=(",", ":")).encode()
