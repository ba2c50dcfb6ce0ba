"""What stands between a plan and its commit: an epoch's rows in durable files."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from backfill_cli.model.plan import EpochPlan, Staged


@dataclass(frozen=True, slots=True)
class StagedEpoch:
    """schemas, sink_schemas: table -> Spark schema as JSON as of this epoch, before and after the transform."""

    staged: Staged
    schemas: Mapping[str, str]
    sink_schemas: Mapping[str, str]


class Stager(Protocol):
    """Turns a plan into durable files under one attempt id. The engine's uses Spark, the simulation's lists."""

    def stage(self, plan: EpochPlan, epoch: int, schemas: Mapping[str, str]) -> StagedEpoch:
        """Write the epoch's rows once, durably. Raises Transient or Fatal; then nothing of it is used."""
        ...

    def folder(self, epoch: int, attempt: str) -> str:
        """Where an attempt's files are."""
        ...

    def intact(self, epoch: int, staged: Staged) -> bool:
        """Whether every staged file still exists with its size, and can be read."""
        ...

    def current_folder(self, epoch: int, staged: Staged) -> str:
        """Where the files are as this version reads them: copies, if an older version staged them."""
        ...

    def discard(self, epoch: int, attempt: str) -> None:
        """Remove an attempt's files, once it is committed or discarded."""
        ...
