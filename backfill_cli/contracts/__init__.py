"""What the engine asks of an upstream, a sink and a catalog: who calls, when, and what follows each error.

All of them raise `errors.Transient` (the engine tries again with backoff, up to the config's limit) or
`errors.Fatal` (nothing is committed, the last epoch stays, the job fails). Anything else is a bug.
"""

from backfill_cli.contracts.sink import (
    CheckedSink,
    EpochCommit,
    SavedJob,
    Sink,
    SinkConnector,
    SinkCopy,
    SinkTable,
    Survey,
    VerifiableSink,
)
from backfill_cli.contracts.store import JobDefinition, JobStore
from backfill_cli.contracts.upstream import (
    AdvisingUpstream,
    ArrowTasks,
    BatchedUpstream,
    DirectUpstream,
    Piece,
    RememberingUpstream,
    TableSpec,
    Upstream,
    UpstreamCapabilities,
    UpstreamConnector,
)

__all__ = [
    "AdvisingUpstream",
    "ArrowTasks",
    "BatchedUpstream",
    "CheckedSink",
    "DirectUpstream",
    "EpochCommit",
    "JobDefinition",
    "JobStore",
    "Piece",
    "RememberingUpstream",
    "SavedJob",
    "Sink",
    "SinkConnector",
    "SinkCopy",
    "SinkTable",
    "Survey",
    "TableSpec",
    "Upstream",
    "UpstreamCapabilities",
    "UpstreamConnector",
    "VerifiableSink",
]
