"""`keep = "columns"` becomes a select list: the key, and the columns that the SELECTs of derived tables name.

From then on such a table is one with a transform: it is read, staged, written and compared as any other.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backfill_cli.config.derived import DerivedSection
from backfill_cli.config.faults import spell_path
from backfill_cli.config.sections import JobFile, Table
from backfill_cli.contracts import own

Tree = dict[str, Any]
Used = Mapping[str, tuple[str, ...] | None]
"""By table: the columns that are used, as somebody writes them; None: any."""


def keep_faults(tree: Tree, file: JobFile, dialect: str | None) -> list[str]:
    """Faults of `keep` in a file that somebody wrote. dialect: of the sink's SQL; None: it has none."""
    faults = []
    for index, table in enumerate(file.tables):
        if table.keep is None:
            continue
        at = spell_path(("tables", index, "keep"))
        if dialect is None:
            faults.append(f"{at}: only a sink that keeps derived tables has it: leave keep out")
        elif table.transform is not None and table.transform.select is not None:
            faults.append(
                f"{at}: the columns are those that derived tables use: leave keep out, or transform.select"
            )
        elif table.transform is None and file.transform.select is not None:
            faults.append(
                f"{at}: the columns are those that derived tables use, and [transform] has a select: "
                "leave keep out, or give the table a transform of its own, such as transform = {}"
            )
        if table.live is not None:
            faults.append(f"{at}: people query its table, as `live` says: leave one of the two out")
    return faults


def with_columns(tree: Tree, file: JobFile, dialect: str, had: Mapping[str, Tree]) -> tuple[Tree, list[str]]:
    """The config's tree, with a select list for each table of which only columns are kept; and the faults.

    had: the sections of the job's tables. What one of them keeps is kept, if it suffices: no column goes, or
    changes its place, because a SELECT did.
    """
    using, faults, sections = used_in(file.tables, file.derived, dialect), list[str](), list(tree["tables"])
    for index, table in enumerate(file.tables):
        if table.keep is None:
            continue
        section = had.get(table.name, {})
        held = _held(section) if section.get("keep") == table.keep else ()
        if table.name not in using and held == ():
            at = spell_path(("tables", index, "keep"))
            faults.append(f"{at}: no derived table reads {table.name}: leave keep out, or the table")
            continue
        columns = merged(held, merged(table.key, using.get(table.name, ())))
        transform = sections[index].get("transform", tree.get("transform", {}))
        if columns is not None:
            transform = {**transform, "select": spelled(columns)}
        sections[index] = {**sections[index], **({"transform": transform} if transform else {})}
    return {**tree, "tables": sections}, faults


def used_in(tables: Sequence[Table], derived: Iterable[DerivedSection], dialect: str) -> Used:
    """What SELECTs use of the tables of which only columns are kept."""
    from backfill_cli.derived.columns import used

    names = {table.name: (table.sink_name,) for table in tables}
    found: dict[str, tuple[str, ...] | None] = {}
    for one in derived:
        for table, columns in used(one.sql, dialect, names, one.refresh is not None).items():
            found[table] = merged(found.get(table, ()), columns)
    return {table.name: found[table.name] for table in tables if table.keep is not None and table.name in found}


def readers_of(
    read: Iterable[str], tables: Sequence[Table], derived: Sequence[DerivedSection], dialect: str
) -> list[str]:
    """The derived tables that read one of these tables, by others, too: each after those that it reads."""
    from backfill_cli.derived.columns import used

    names = {one.name: (one.sink_name,) for one in tables} | {one.name: (one.sink_name,) for one in derived}
    reads = {one.name: used(one.sql, dialect, names).keys() for one in derived}
    reached = set(read)
    while more := {one for one, of in reads.items() if not reached.isdisjoint(of)} - reached:
        reached |= more
    left, found = [one for one in reads if one in reached], list[str]()
    while left:
        found += [one for one in left if reads[one].isdisjoint(left)] or left
        left = [one for one in left if one not in found]
    return found


def merged(some: Sequence[str] | None, more: Sequence[str] | None) -> tuple[str, ...] | None:
    """Columns, and those of `more` that are not among them; None: any."""
    if some is None or more is None:
        return None
    names = {own.fold(name) for name in some}
    return (*some, *(name for name in more if own.fold(name) not in names))


def spelled(columns: Iterable[str]) -> list[str]:
    """As Spark SQL."""
    return [f"`{name.replace('`', '``')}`" for name in columns]


def selected(select: Iterable[str]) -> tuple[str, ...]:
    """The columns of a select list that `spelled` made."""
    return tuple(text[1:-1].replace("``", "`") for text in select)


def same(name: str, other: str, dialect: str) -> bool:
    """Whether both, as `used_in` has them, are one column's name in the sink; they differ in case at most."""
    from backfill_cli.derived.engines import ENGINES

    return name == other or ENGINES[dialect].ignores_case


def lacking(table: Table, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Of these columns, those that a table does not keep, of which only columns are kept."""
    if table.transform is None or table.transform.select is None:
        return ()
    if columns is None:
        return ("all columns",)
    held = {own.fold(name) for name in selected(table.transform.select)}
    return tuple(name for name in columns if own.fold(name) not in held)


def _held(section: Tree) -> tuple[str, ...] | None:
    """The columns that a table keeps, of which only columns are kept; None: any."""
    select = section.get("transform", {}).get("select")
    return None if select is None else selected(select)
