"""The tables that a SELECT can read, by all the names that it may call them."""

from collections.abc import Callable, Sequence

from backfill_cli.contracts import SinkTable, own
from backfill_cli.model.derived import Base
from backfill_cli.model.schema import names_of


def bases_of(tables: Sequence[SinkTable], at: Callable[[SinkTable], tuple[str, str]]) -> tuple[Base, ...]:
    """Each by its name in the job, the last part of that if no other has it, or its target.

    at: (its target in full, the same as SQL).
    """
    listed = [table for table in tables if not table.side]
    lasts = [own.fold(_last(table.name)) for table in listed]

    def base(table: SinkTable) -> Base:
        (target, sql), last = at(table), _last(table.name)
        short = (last,) if lasts.count(own.fold(last)) == 1 else ()
        names = dict.fromkeys((table.name, *short, table.target, target))
        return Base(table.name, tuple(names), sql, table.key, tuple(names_of(table.schema)), table.key)

    return tuple(map(base, listed))


def _last(name: str) -> str:
    return name.rpartition(".")[2].strip('"')
