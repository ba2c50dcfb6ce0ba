"""Records as they are: bytes in one column, which nothing can be wrong with."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from backfill_cli.contracts.decoder import Asked, Decoded, Found
from backfill_cli.decode.json_rows import Rows
from backfill_cli.errors import ConfigError
from backfill_cli.model.schema import Columns, field

COLUMNS: Columns = {"value": field("value", "binary")}


@dataclass(frozen=True, slots=True)
class PlainBytes:
    """A `Decode`."""

    @property
    def beside(self) -> Columns:
        return {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        import pyarrow as pa

        return Decoded({"value": pa.array(records, pa.binary())})


class Bytes:
    """See contracts.decoder.Decoder."""

    changes: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        if asked.declared is not None:
            fault = f"{asked.at}: bytes have one column, `value BINARY`: leave schema out"
            raise ConfigError("upstream", [fault])
        return Found(COLUMNS)

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Rows:
        return Rows(PlainBytes())


decoder = Bytes()
