"""Delta tables as an upstream: rows at a version, and the change data feed after it."""

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from backfill_cli.contracts import Looked, Named, Source, TableSpec, UpstreamConnector
from backfill_cli.contracts.options import Example, FilePath
from backfill_cli.lake.delta import is_table, require_package, require_place
from backfill_cli.lake.options import LakeOptions, fingerprint, moment, require_one_each


class DeltaOptions(LakeOptions):
    """A Delta table: its rows at a version, and its change data feed from there on."""

    require_place: ClassVar[Callable[[str], None]] = require_place
    type: Literal["delta"] = Field(default="delta", description="this connector")
    table: Annotated[str, FilePath(names=True), Example("lake/orders")] = Field(
        min_length=1,
        description="the table's folder: a local path or a URI, with a `/` in it; or catalog.schema.table, in a "
        "catalog of the session; contains {table} if there are several tables",
    )
    version: int | str = Field(
        default="latest",
        description='the version to read as the snapshot: "latest", a version\'s number, or a timestamp '
        '("2026-11-01T12:00:00Z"), for the version that was the newest then',
    )

    @field_validator("version")
    @classmethod
    def _is_a_version(cls, given: int | str) -> int | str:
        if isinstance(given, int) or given.isdigit():
            if int(given) < 0:
                raise ValueError("a version is 0 or more")
            return int(given)
        if given != "latest" and moment(given) is None:
            raise ValueError('"latest", a number, or a timestamp with its time zone like "2026-11-01T12:00:00Z"')
        return given


def _open(options: DeltaOptions, tables: Sequence[TableSpec]) -> Source:
    require_one_each(options, tables)
    require_package()
    from backfill_cli.upstreams.delta.upstream import DeltaUpstream

    return DeltaUpstream(options, tables)


def _look(named: Named) -> Looked:
    require_package()
    from backfill_cli.upstreams.delta.look import look

    return look(named)


connector = UpstreamConnector(DeltaOptions, _open, fingerprint, look=_look, claims=is_table, formats=("delta",))
