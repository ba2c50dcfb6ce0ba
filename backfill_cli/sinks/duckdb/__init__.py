"""DuckDB as a sink: one embedded file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from backfill_cli.contracts import Sink, SinkConnector
from backfill_cli.contracts.domain import Domain
from backfill_cli.contracts.options import Example, FilePath


class DuckDBOptions(BaseModel):
    """`[sink]` with type = "duckdb"."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    type: str = Field("duckdb", pattern="^duckdb$", description="This sink.")
    path: Annotated[str, FilePath(words=frozenset({":memory:"})), Example("warehouse.duckdb")] = Field(
        min_length=1, description="The DuckDB file; created if it does not exist. Its folder must exist."
    )
    memory_limit: str = Field(
        "1GB",
        pattern=r"(?i)^\d+(\.\d+)?\s*(KB|MB|GB|TB|KiB|MiB|GiB|TiB)$",
        description="Memory that DuckDB may use for a commit, with a unit: 512MB, 1GB.",
    )
    threads: int | None = Field(None, ge=1, description="Threads for DuckDB's commits. Default: one per core.")


def _open(options: DuckDBOptions) -> Sink:
    from backfill_cli.sinks.duckdb.sink import DuckDBSink

    return DuckDBSink(options)


def _fingerprint(options: DuckDBOptions) -> Mapping[str, Any]:
    return {"type": "duckdb", "path": str(Path(options.path).absolute())}


_SUFFIXES = (".duckdb", ".ddb", ".db")


def _claims(text: str) -> bool:
    """A name that says so, or a file that DuckDB wrote."""
    if "://" in text or text.endswith(_SUFFIXES):
        return "://" not in text
    try:
        with open(text, "rb") as file:
            return file.read(12)[8:] == b"DUCK"
    except OSError:
        return False


_DOMAIN = Domain("DuckDB", frozenset({"uuid", "json"}), halves=False)
connector = SinkConnector(
    options=DuckDBOptions,
    open=_open,
    fingerprint=_fingerprint,
    place="path",
    claims=_claims,
    domain=lambda _options: _DOMAIN,
    dialect="duckdb",
)
