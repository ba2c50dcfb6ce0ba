"""What the engine asks of an upstream, a sink and a catalog: who calls, when, and what follows each error.

All of them raise `errors.Transient` (the engine retries with backoff, up to the config's limit) or
`errors.Fatal` (nothing is committed, the last epoch stands, the job fails). Any other exception is a bug.
"""

from backfill_cli.contracts.clock import Clocked
from backfill_cli.contracts.looked import Looked, Told
from backfill_cli.contracts.pair import Pair
from backfill_cli.contracts.sides import ChangeLog, ChangesConnector, SnapshotConnector, SnapshotSide
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
from backfill_cli.contracts.spool import SpoolEntry
from backfill_cli.contracts.staging import StagedEpoch, Stager
from backfill_cli.contracts.store import JobDefinition, JobStore
from backfill_cli.contracts.table import TableSpec
from backfill_cli.contracts.taking import (
    ChangeFrame,
    HeldUpstream,
    LogBatch,
    LogReader,
    RetainingUpstream,
    SpoolingUpstream,
    Taken,
    TakenTable,
    TakingUpstream,
    WaitingUpstream,
)
from backfill_cli.contracts.upstream import (
    AdvisingUpstream,
    ApartUpstream,
    ArrowTasks,
    BatchedUpstream,
    DirectUpstream,
    LocatedUpstream,
    PastUpstream,
    Piece,
    RememberingUpstream,
    ShowingUpstream,
    SparkUpstream,
    Upstream,
    UpstreamCapabilities,
    UpstreamConnector,
)

__all__ = [
    "AdvisingUpstream",
    "ApartUpstream",
    "ArrowTasks",
    "BatchedUpstream",
    "BlockingCopy",
    "ChangeFrame",
    "ChangeLog",
    "ChangesConnector",
    "CheckedSink",
    "Clocked",
    "DirectUpstream",
    "EpochCommit",
    "HeldUpstream",
    "JobDefinition",
    "JobStore",
    "LocatedSink",
    "LocatedUpstream",
    "LogBatch",
    "LogReader",
    "LogicalSink",
    "Looked",
    "Pair",
    "PastUpstream",
    "Piece",
    "RememberingUpstream",
    "RetainingUpstream",
    "SavedJob",
    "ShowingUpstream",
    "Sink",
    "SinkConnector",
    "SinkCopy",
    "SinkTable",
    "SnapshotConnector",
    "SnapshotSide",
    "SparkSink",
    "SparkUpstream",
    "SpoolEntry",
    "SpoolingUpstream",
    "StagedEpoch",
    "Stager",
    "Survey",
    "TableSpec",
    "Taken",
    "TakenTable",
    "TakingUpstream",
    "Told",
    "Upstream",
    "UpstreamCapabilities",
    "UpstreamConnector",
    "VerifiableSink",
    "WaitingUpstream",
]
