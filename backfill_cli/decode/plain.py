"""Records of one value: bytes as they are, and keys by Kafka's serializers of texts and of numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from backfill_cli.contracts.decoder import Asked, Decoded, Found
from backfill_cli.decode import values
from backfill_cli.decode.rows import Rows, one_by_one
from backfill_cli.decode.tokens import text_of
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.errors import ConfigError, in_config
from backfill_cli.model.schema import Columns, field

COLUMNS: Columns = {"value": field("value", "binary")}


@dataclass(frozen=True, slots=True)
class Plain:
    """A `Decode` of one column. kind: its type. form: bytes, string or long."""

    name: str = "value"
    kind: str = "binary"
    form: str = "bytes"

    @property
    def beside(self) -> Columns:
        return {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        import pyarrow as pa

        if self.form == "bytes" and self.kind == "binary":
            return Decoded({self.name: pa.array(records, pa.binary())})
        return one_by_one({self.name: field(self.name, self.kind)}, records, lambda record: (self._value(record),))

    def _value(self, record: bytes) -> Any:
        if self.form != "long":
            return values.of_text(text_of(record), self.kind)
        if len(record) != _LONG:
            raise Unreadable(f"{len(record)} bytes, but a long has {_LONG}")
        return values.of_text(str(int.from_bytes(record, "big", signed=True)), self.kind)


@dataclass(frozen=True, slots=True)
class PlainFormat:
    """See contracts.decoder.Decoder. kinds: of the key column that it can be, by how their names begin."""

    form: str
    kinds: tuple[str, ...]
    changes: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        return Found(COLUMNS)

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Rows:
        if not asked.of_keys:
            return Rows(Plain())
        one = next(iter(columns.values()))
        kind = one["type"]
        if len(columns) > 1 or not isinstance(kind, str) or not kind.startswith(self.kinds):
            of = _SAID[self.form]
            fault = f"{asked.at}.format: {of}"
            raise ConfigError("upstream", [fault], in_config(f'set {asked.at}.format = "json"'))
        return Rows(Plain(one["name"], kind, self.form))


_LONG = 8
_WHOLE = ("byte", "short", "integer", "long", "decimal")
_SAID = {
    "bytes": "bytes are the value of one key column, STRING or BINARY",
    "string": "a string is the value of one key column, of a simple type other than BINARY",
    "long": "a long is the value of one key column, of whole numbers",
}

decoder = PlainFormat("bytes", ("string", "binary"))
strings = PlainFormat("string", ("string", *_WHOLE, "float", "double", "boolean", "date", "timestamp"))
longs = PlainFormat("long", _WHOLE)
