"""Iceberg tables as a sink: in folders, or by name in a catalog of the session."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

from pydantic import Field, field_validator

from backfill_cli.contracts import Sink, SinkConnector
from backfill_cli.contracts.options import Example, FilePath
from backfill_cli.lake.iceberg.places import Place, is_table, require_place
from backfill_cli.lake.options import LakeOptions


class IcebergSinkOptions(LakeOptions):
    """`[sink]` with type = "iceberg"."""

    require_place: ClassVar[Callable[[str], None]] = require_place
    type: str = Field("iceberg", pattern="^iceberg$", description="This sink.")
    table: Annotated[str, FilePath(names=True), Example("lake/{table}")] = Field(
        min_length=1,
        description="The table's own folder, a path or URI; or catalog.schema.table, in a catalog that "
        "spark.conf defines. {table} stands for a table's target, and is needed for several tables.",
    )
    branch: Annotated[str, Example("backfill")] | None = Field(
        default=None,
        pattern=r"^[A-Za-z][A-Za-z0-9_]*$",
        description="A branch of the tables that the job fills, empty at first, beside the rows that people "
        "query; `backfill cutover` makes it the table's own in one step. Without it rows go to the table itself.",
    )
    properties: Mapping[str, str] = Field(
        default_factory=dict,
        description="Properties of the tables that the job creates, as Iceberg names them, such as "
        "`write.target-file-size-bytes`. Existing tables keep theirs.",
    )

    @field_validator("branch")
    @classmethod
    def _is_no_other(cls, given: str | None) -> str | None:
        if given is not None and (given == "main" or given.startswith("backfill_")):
            raise ValueError("main and names that begin with backfill_ are reserved")
        return given


def _open(options: IcebergSinkOptions) -> Sink:
    from backfill_cli.sinks.iceberg.sink import IcebergSink

    return IcebergSink(options)


def _fingerprint(options: IcebergSinkOptions) -> Mapping[str, Any]:
    own = {} if options.branch is None else {"branch": options.branch}
    return {"type": "iceberg", "table": str(Place.of(options.table)), **own}


connector = SinkConnector(
    options=IcebergSinkOptions,
    open=_open,
    fingerprint=_fingerprint,
    formats=("iceberg",),
    place="table",
    claims=is_table,
    dialect="spark",
)
