"""Iceberg tables as an upstream: rows at a snapshot, and the changes between snapshots after it."""

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from backfill_cli.contracts import Looked, Named, Source, TableSpec, UpstreamConnector
from backfill_cli.contracts.options import Example, FilePath
from backfill_cli.lake.iceberg.places import is_table, require_place
from backfill_cli.lake.options import LakeOptions, fingerprint, require_one_each


class IcebergOptions(LakeOptions):
    """An Iceberg table: its rows at a snapshot, and what changed from there on."""

    require_place: ClassVar[Callable[[str], None]] = require_place
    type: Literal["iceberg"] = Field(default="iceberg", description="this connector")
    table: Annotated[str, FilePath(names=True), Example("lake/orders")] = Field(
        min_length=1,
        description="the table's folder, a path or URI with a `/` in it; or catalog.schema.table, in a catalog "
        "that spark.conf defines; contains {table} if there are several tables",
    )
    version: int | str = Field(
        default="latest",
        description='the snapshot to read: "latest", a snapshot\'s id, a tag or branch, or a timestamp '
        '("2026-11-01T12:00:00Z"), for the snapshot that was the newest then',
    )
    tag: bool = Field(
        default=True,
        description="whether the job creates a tag that keeps the snapshot from expiring while it is read; false "
        "if the job may not write to the table",
    )

    @field_validator("version")
    @classmethod
    def _is_a_version(cls, given: int | str) -> int | str:
        return int(given) if isinstance(given, str) and given.isdigit() else given


def _open(options: IcebergOptions, tables: Sequence[TableSpec]) -> Source:
    from backfill_cli.upstreams.iceberg.upstream import IcebergUpstream

    require_one_each(options, tables)
    return IcebergUpstream(options, tables)


def _look(named: Named) -> Looked:
    from backfill_cli.upstreams.iceberg.look import look

    return look(named)


connector = UpstreamConnector(
    IcebergOptions, _open, fingerprint, look=_look, claims=is_table, formats=("iceberg",)
)
