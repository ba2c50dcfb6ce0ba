"""Refuses foreign keys between a job's own tables that cannot hold while the job writes both."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backfill_cli.errors import UsageError
from backfill_cli.sinks.postgres.session import Connection, rows_of
from backfill_cli.sinks.postgres.sql import TREE, Target, listed, quoted

_ACTIONS = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT", "r": "RESTRICT"}


@dataclass(frozen=True, slots=True)
class _Reference:
    """A foreign key of `child`, a target or its partition. root: the table of which `parent` is a partition."""

    name: str
    child: Target
    parent: Target
    root: Target
    on: str
    deferrable: bool
    definition: str

    def refers_to(self, target: Target) -> bool:
        return target in (self.parent, self.root)


def refuse_references(con: Connection, tables: Sequence[tuple[str, Target]], fresh: bool) -> None:
    """Raises UsageError for a foreign key between these tables that a commit would violate, or that would act.

    tables: those that exist, with the job's names, in the job's order. fresh: the job has committed nothing, so
    the snapshots are still to be read, one table after the other.
    """
    for at, (name, target) in enumerate(tables):
        for reference in _references(con, target):
            for place, (other, parent) in enumerate(tables):
                if not reference.refers_to(parent):
                    continue
                _refuse_acting(reference)
                if fresh and place == at:
                    raise _of_itself(reference)
                if fresh and place > at:
                    raise _out_of_order(reference, other, name)


def _references(con: Connection, target: Target) -> Iterator[_Reference]:
    def names(numbers: str, of: str) -> str:
        return (
            f"(SELECT pg_catalog.json_agg(a.attname ORDER BY k.place)::text FROM pg_catalog.unnest({numbers}) "
            "WITH ORDINALITY AS k (number, place) JOIN pg_catalog.pg_attribute a "
            f"ON a.attrelid = {of} AND a.attnum = k.number)"
        )

    found = rows_of(
        con,
        f"{TREE} SELECT f.conname, cn.nspname, c.relname, pn.nspname, p.relname, rn.nspname, r.relname, "
        "f.confdeltype::text, f.confupdtype::text, f.condeferrable, f.confmatchtype::text, "
        f"{names('f.conkey', 'f.conrelid')}, {names('f.confkey', 'f.confrelid')} "
        "FROM tree JOIN pg_catalog.pg_constraint f ON f.conrelid = tree.oid AND f.contype = 'f' "
        "AND f.conparentid = 0 "
        "JOIN pg_catalog.pg_class c ON c.oid = f.conrelid "
        "JOIN pg_catalog.pg_namespace cn ON cn.oid = c.relnamespace "
        "JOIN pg_catalog.pg_class p ON p.oid = f.confrelid "
        "JOIN pg_catalog.pg_namespace pn ON pn.oid = p.relnamespace "
        "JOIN pg_catalog.pg_class r ON r.oid = coalesce(pg_catalog.pg_partition_root(p.oid)::oid, p.oid) "
        "JOIN pg_catalog.pg_namespace rn ON rn.oid = r.relnamespace ORDER BY f.conname",
        target.sql,
    )
    for name, *where, deleted, updated, deferrable, match, held, referred in found:
        child, parent, root = (Target(*where[at : at + 2]) for at in (0, 2, 4))
        acts = [
            f"ON {what} {_ACTIONS[how]}" for what, how in (("DELETE", deleted), ("UPDATE", updated)) if how != "a"
        ]
        full = " MATCH FULL" if match == "f" else ""
        yield _Reference(
            name,
            child,
            parent,
            root,
            " ".join(acts),
            deferrable,
            f"FOREIGN KEY ({listed(json.loads(held))}) REFERENCES {parent.sql} "
            f"({listed(json.loads(referred))}){full}",
        )


def _refuse_acting(reference: _Reference) -> None:
    name = quoted(reference.name)
    if reference.on:
        raise UsageError(
            f"the foreign key {reference.name!r} of {reference.child} is {reference.on}: it would act on rows of "
            f"{reference.child} while the job writes those of {reference.parent}",
            f"ALTER TABLE {reference.child.sql} DROP CONSTRAINT {name}, ADD CONSTRAINT {name} "
            f"{reference.definition} DEFERRABLE",
        )
    if not reference.deferrable:
        raise UsageError(
            f"the foreign key {reference.name!r} of {reference.child} is not DEFERRABLE: it would be checked "
            f"before the job has written both {reference.parent} and {reference.child}",
            f"ALTER TABLE {reference.child.sql} ALTER CONSTRAINT {name} DEFERRABLE",
        )


def _of_itself(reference: _Reference) -> UsageError:
    return UsageError(
        f"the foreign key {reference.name!r} of {reference.child} refers to the table itself, whose rows are "
        "written in the order of the snapshot",
        f"ALTER TABLE {reference.child.sql} DROP CONSTRAINT {quoted(reference.name)}; add it again, DEFERRABLE, "
        "once the job is caught up",
    )


def _out_of_order(reference: _Reference, parent: str, child: str) -> UsageError:
    return UsageError(
        f"the foreign key {reference.name!r} of {reference.child} refers to {reference.parent}, whose snapshot is "
        "read later: snapshots are read in the order of the tables",
        f"list {parent} before {child} in [[tables]]; or, where each refers to the other, ALTER TABLE "
        f"{reference.child.sql} DROP CONSTRAINT {quoted(reference.name)}, and add it again, DEFERRABLE, once the "
        "job is caught up",
    )
