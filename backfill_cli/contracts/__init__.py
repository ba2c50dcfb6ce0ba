"""What the engine asks of a source, a sink and a catalog: who calls, when, and what follows each error.

All of them raise `errors.Transient` (the engine retries with backoff, up to the config's limit) or
`errors.Fatal` (nothing is committed, the last epoch stands, the job fails). Any other exception is a bug.
"""

from backfill_cli.contracts.clock import Clocked
from backfill_cli.contracts.looked import Looked, Told
from backfill_cli.contracts.pair import Pair
from backfill_cli.contracts.sink import (
    BlockingCopy,
    CheckedSink,
    EpochCommit,
    LocatedSink,
    LogicalSink,
    SavedJob,
    Sink,
    SinkConnector,
    SinkCopy,
    SinkTable,
    SparkSink,
    Survey,
    VerifiableSink,
)
from backfill_cli.contracts.source import (
    ArrowTasks,
    BrokenContract,
    Capabilities,
    ChangeFrame,
    ChangeLog,
    ChangesConnector,
    ConsumableLog,
    Current,
    Extras,
    Lease,
    LogBatch,
    Partitions,
    Piece,
    Pinned,
    SnapshotConnector,
    SnapshotSide,
    Source,
    TableSpec,
    Taken,
    TakenTable,
    UpstreamConnector,
)
from backfill_cli.contracts.spool import SpoolEntry
from backfill_cli.contracts.staging import StagedEpoch, Stager
from backfill_cli.contracts.store import JobDefinition, JobStore

__all__ = [
    "ArrowTasks",
    "BlockingCopy",
    "BrokenContract",
    "Capabilities",
    "ChangeFrame",
    "ChangeLog",
    "ChangesConnector",
    "CheckedSink",
    "Clocked",
    "ConsumableLog",
    "Current",
    "EpochCommit",
    "Extras",
    "JobDefinition",
    "JobStore",
    "Lease",
    "LocatedSink",
    "LogBatch",
    "LogicalSink",
    "Looked",
    "Pair",
    "Partitions",
    "Piece",
    "Pinned",
    "SavedJob",
    "Sink",
    "SinkConnector",
    "SinkCopy",
    "SinkTable",
    "SnapshotConnector",
    "SnapshotSide",
    "Source",
    "SparkSink",
    "SpoolEntry",
    "StagedEpoch",
    "Stager",
    "Survey",
    "TableSpec",
    "Taken",
    "TakenTable",
    "Told",
    "UpstreamConnector",
    "VerifiableSink",
]
