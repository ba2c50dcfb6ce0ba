"""Delta tables as a sink: one commit per table and epoch, written by Spark."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from backfill_cli.contracts import Sink, SinkConnector
from backfill_cli.contracts.options import Example, FilePath
from backfill_cli.lake.delta import FORGETS, is_table, require_package, require_place
from backfill_cli.lake.options import LakeOptions


class DeltaOptions(LakeOptions):
    """`[sink]` with type = "delta"."""

    require_place: ClassVar[Callable[[str], None]] = require_place
    type: str = Field("delta", pattern="^delta$", description="This sink.")
    table: Annotated[str, FilePath(names=True), Example("lake/{table}")] = Field(
        min_length=1,
        description="The table's folder: a local path or a URI, with a `/` in it; or catalog.schema.table, in a "
        "catalog of the session. Created if it does not exist. For several tables it contains {table}, which "
        "stands for each table's target. backfill keeps its own state in the folder `_backfill_state` beside the "
        "table, or in the schema's folder.",
    )
    properties: Mapping[str, str] = Field(
        default_factory=dict,
        description="Properties of the tables that the job creates, as Delta names them, such as "
        "`delta.enableDeletionVectors`. Existing tables keep theirs.",
    )

    @field_validator("properties")
    @classmethod
    def _can_be_written(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        for name in given:
            if name.lower() == FORGETS.lower():
                raise ValueError(f"{name} would let a table forget which commit it is at")
            if name.lower() == "delta.appendonly":
                raise ValueError(f"{name} would let rows be added only, but a job changes and deletes them, too")
        return given


def _open(options: DeltaOptions) -> Sink:
    require_package()
    from backfill_cli.sinks.delta.sink import DeltaSink

    return DeltaSink(options)


def _fingerprint(options: DeltaOptions) -> Mapping[str, Any]:
    return {"type": "delta", "table": options.table}


connector = SinkConnector(
    options=DeltaOptions,
    open=_open,
    fingerprint=_fingerprint,
    formats=("delta",),
    place="table",
    claims=is_table,
    dialect="spark",
)
