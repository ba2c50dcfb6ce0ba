"""The columns of a planned table as lines of text: each with its type, and the fields that it is read from."""

import shutil
import sys
from collections.abc import Iterable, Sequence

from backfill_cli.model.reports import FieldRead, PlannedDerived, PlannedTable
from backfill_cli.view.console import interactive, wrapped

_INDENT = 6
"""Where what a narrow line cannot hold begins a new one."""

_TYPE = 24
"""Longer types have no say in where the fields begin."""

_IDS = 4
"""The most schemas that are named."""


def column_lines(table: PlannedTable) -> list[str]:
    """Columns and types; where records name their schemas, a third column: the fields, by these schemas."""
    if not table.fields:
        return _lines(table.columns, {})
    by: dict[str | None, list[FieldRead]] = {}
    for one in table.fields:
        by.setdefault(one.column, []).append(one)
    ids = sorted({id for one in table.fields for id in one.schemas}, reverse=True)
    told = {name: _told(name, of, ids) for name, of in by.items() if name is not None}
    known = f"by schema id{'s' * (len(ids) > 1)} {_listed(ids)} (of a sample, and the newest)"
    left = ", ".join(dict.fromkeys(one.field for one in by.get(None, ())))
    rest = [wrapped(f"  left out: {left}", 4)] if left else []
    if not table.transformed:
        return [*_lines(table.columns, told), wrapped(f"  {known}", 4), *rest]
    before = dict.fromkeys((str(one.column), str(one.type)) for one in table.fields if one.column is not None)
    return [
        *_lines(table.columns, {}),
        wrapped(f"  before its transform, {known}:", 4),
        *_lines([*before], told),
        *rest,
    ]


def derived_lines(table: PlannedDerived) -> list[str]:
    """A derived table: its columns, and how changes of what it reads reach its rows, as a drawing.

    a change reaches its rows:
      public.orders     o.customer_id ─┐
      public.customers  c.id ──────────┴─→ country, day
    """
    name = table.name if table.name == table.target else f"{table.name} → {table.target}"
    key = f"key {', '.join(table.key)}" if table.key else "one row"
    if table.refresh is not None:
        key += f'; refresh = "{table.refresh}"'
    lines = [f"derived table {name}: a SELECT; {key}", *_lines(table.columns, {})]
    names = [one.table for one in table.reads]
    notes = [wrapped(f"  note: {one}", 8) for one in table.notes]
    if table.refresh is not None:  # its note says what a change reaches
        return [*lines, wrapped(f"  reads {', '.join(dict.fromkeys(names))}", 4), *notes]
    lines.append("  a change reaches its rows:")
    called = [
        ", ".join(f"{one.named}.{column}" for column in one.by) if one.by else f"all of {one.named}"
        for one in table.reads
    ]
    every = "all of its rows" if table.key else "its one row"
    to, last = ", ".join(table.found_by) or every, len(names) - 1
    left, right = max(map(len, names)), max(map(len, called))
    for at, (read, by) in enumerate(zip(names, called, strict=True)):
        joint = "" if not last else "─┐" if at == 0 else "─┤" if at < last else "─┴"
        end = f"─→ {to}" if at == last else ""
        lines.append(f"    {read:<{left}}  {by} {'─' * (right - len(by))}{joint}{end}")
    return [*lines, *notes]


def _lines(columns: Iterable[tuple[str, str]], told: dict[str, str]) -> list[str]:
    columns = list(columns)
    width = max((len(name) for name, _ in columns), default=0)
    kinds = max((len(kind) for _, kind in columns if len(kind) <= _TYPE), default=0)
    at = 2 + width + 2 + kinds + 2
    terminal = shutil.get_terminal_size().columns if interactive(sys.stdout) else sys.maxsize
    indent = at if terminal >= 2 * at else _INDENT
    found = []
    for name, kind in columns:
        line = f"  {name:<{width}}  {kind}"
        beside = f"{line:<{at}}{told.get(name, '')}".rstrip()
        if not told.get(name):
            found.append(line)
        elif len(line) + 2 <= at and (indent == at or len(beside) <= terminal):
            found.append(wrapped(beside, indent))
        else:
            found += [line, wrapped(f"{'':{indent}}{told[name]}", indent)]
    return found


def _told(column: str, fields: Sequence[FieldRead], ids: Sequence[int]) -> str:
    """`int64; int32 in 11`, `date; born: date in 11`, `string; not in 11`. fields: of the newest schemas first."""
    parts: list[str] = []
    for one in fields:
        what = one.written if one.field == column else f"{one.field}: {one.written}"
        parts.append(f"{what} in {_listed(one.schemas)}" if parts else what)
    missing = set(ids).difference(*(one.schemas for one in fields))
    if fields and missing:
        parts.append(f"not in {_listed(sorted(missing, reverse=True))}")
    return "; ".join(parts)


def _listed(ids: Sequence[int]) -> str:
    """`13, 12 and 11`."""
    named = [str(id) for id in ids[:_IDS]]
    more = [f"{len(ids) - _IDS:,} more"] if len(ids) > _IDS else []
    *most, last = [*named, *more]
    return f"{', '.join(most)} and {last}" if most else last
