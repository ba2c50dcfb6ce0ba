"""A format in a package of its own: `id=1 note=a` in a record, as CONTRIBUTING.md describes it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from backfill_cli.contracts.decoder import Asked, Decoded, Found
from backfill_cli.decode.rows import Rows, one_by_one
from backfill_cli.decode.tokens import text_of
from backfill_cli.decode.unreadable import Unreadable
from backfill_cli.decode.values import of_text
from backfill_cli.decode.whole import IN_ROW, lacking_column, new_column
from backfill_cli.errors import ConfigError
from backfill_cli.model.schema import Columns, columns_of, schema_text


@dataclass(frozen=True)
class Logfmt:
    """A `Decode`. schema: of the columns. whole: as in `Asked`."""

    schema: str
    whole: tuple[frozenset[str], frozenset[str]] | None = None

    @property
    def beside(self) -> Columns:
        return {}

    def __call__(self, records: Sequence[bytes | None]) -> Decoded:
        columns = columns_of(self.schema)

        def row(record: bytes) -> list[Any]:
            members = dict(part.partition("=")[::2] for part in text_of(record).split())
            if self.whole is not None:
                others, required = self.whole
                fault = new_column(members, columns, others, IN_ROW) or lacking_column(members, required)
                if fault:
                    raise Unreadable(fault)
            found = []
            for name, column in columns.items():
                try:
                    found.append(of_text(members[name], column["type"]) if name in members else None)
                except Unreadable as exc:
                    raise Unreadable(f"column '{name}': {exc}") from None
            return found

        return one_by_one(columns, records, row)


class LogfmtDecoder:
    """See contracts.decoder.Decoder."""

    changes: ClassVar[bool] = False
    options: ClassVar[frozenset[str]] = frozenset()

    def columns(self, asked: Asked, samples: Callable[[], Sequence[bytes]]) -> Found:
        if asked.declared is None:
            raise ConfigError("upstream", [f"{asked.at}: logfmt says no types: give schema"])
        return Found(asked.declared)

    def open(self, asked: Asked, columns: Columns, facts: Mapping[str, Any]) -> Rows:
        return Rows(Logfmt(schema_text(columns), asked.whole))


decoder = LogfmtDecoder()
