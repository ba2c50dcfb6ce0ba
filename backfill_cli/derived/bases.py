"""The tables that a SELECT can read, by all the names that it may call them."""

import re
from collections.abc import Callable, Sequence

from backfill_cli.contracts import SinkTable, own
from backfill_cli.model.derived import Base
from backfill_cli.model.schema import names_of


def bases_of(tables: Sequence[SinkTable], at: Callable[[SinkTable], tuple[str, str]]) -> tuple[Base, ...]:
    """Each by its name in the job, the last part of that if no other has it, or its target.

    at: (its target in full, the same as SQL).
    """
    listed = [table for table in tables if not table.side]
    lasts = [own.fold(_parts(table.name)[-1]) for table in listed]

    def base(table: SinkTable) -> Base:
        (target, sql), parts = at(table), _parts(table.name)
        short = (parts[-1],) if lasts.count(own.fold(parts[-1])) == 1 else ()
        names = dict.fromkeys((table.name, ".".join(parts), *short, table.target, target))
        return Base(table.name, tuple(names), sql, table.key, tuple(names_of(table.schema)), table.key)

    return tuple(map(base, listed))


def _parts(name: str) -> list[str]:
    """Of a name such as `public.orders` or `"Shop"."a.b"`, the identifiers, without their quotes.

    Quotes elsewhere are part of a name: a folder's can have them.
    """
    if _QUOTED.fullmatch(name) is None:
        return [one for one in name.rpartition(".")[::2] if one]
    return [quoted.replace('""', '"') or plain for quoted, plain in _PART.findall(name)]


_PART = re.compile(r'"((?:[^"]|"")+)"|([^."]+)')
_QUOTED = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
