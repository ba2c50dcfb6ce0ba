"""Records as they are: bytes in one column, which nothing can be wrong with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from backfill_cli.contracts.decoder import Asked, Decoded, Found
from backfill_cli.decode.rows import Rows, one_by_one
from backfill_cli.decode.tokens import text_of
from backfill_cli.errors import ConfigError, in_config
from backfill_cli.model.schema import Columns, field

COLUMNS: Columns = {"value": field("value", "binary")}


@dataclass(frozen=True, slots=True)
class PlainBytes:
    """A `Decode`. kind: of its one column, STRING or BINARY."""

    name: str = "value"
    kind: str = "binary"

    @property
    def beside(self) -> Columns:
        return {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        import pyarrow as pa

        if self.kind == "binary":
            return Decoded({self.name: pa.array(records, pa.binary())})
        columns = {self.name: field(self.name, "string")}
        return one_by_one(columns, records, lambda record: (text_of(record),))


class Bytes:
    """See contracts.decoder.Decoder."""

    changes: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        return Found(COLUMNS)

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Rows:
        if not asked.of_keys:
            return Rows(PlainBytes())
        one = next(iter(columns.values()))
        if len(columns) > 1 or one["type"] not in ("string", "binary"):
            fault = f"{asked.at}.format: bytes are the value of one key column, STRING or BINARY"
            raise ConfigError("upstream", [fault], in_config(f'set {asked.at}.format = "json"'))
        return Rows(PlainBytes(one["name"], one["type"]))


decoder = Bytes()
