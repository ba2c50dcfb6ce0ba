"""How a target must be written, given its foreign keys, triggers, columns and indexes."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from backfill_cli.sinks.postgres.session import Connection, rows_of
from backfill_cli.sinks.postgres.sql import TREE, Target, quoted
from backfill_cli.sinks.postgres.types import Column

_BEFORE_ROW, _UPDATE_OR_DELETE = 1 | 2, 8 | 16
"""Bits of pg_trigger.tgtype."""


@dataclass(frozen=True, slots=True)
class Unique:
    """A unique index (or exclusion constraint), checked row by row, whose values a change may move between keys.

    columns: the indexed columns; empty if it covers an expression or a column that the job does not write.
    blank: one of them that can be NULL, and then never clashes; empty if there is none.
    """

    columns: tuple[str, ...]
    blank: str


@dataclass(frozen=True, slots=True)
class Shape:
    """referenced: another table's foreign key refers to it. extra: columns that the job does not write.

    triggered: it has triggers. silencers: statements that disable those that can prevent a row from changing.
    clashing: its unique indexes that may clash while rows are being replaced.
    """

    referenced: bool
    triggered: bool
    silencers: tuple[str, ...]
    extra: tuple[str, ...]
    clashing: tuple[Unique, ...]

    @property
    def in_place(self) -> bool:
        """Whether a changed row must be updated, not deleted and inserted again.

        Another table's foreign key would delete its rows too (ON DELETE CASCADE) or refuse the delete; a trigger
        would see a delete that did not happen; a column that the job does not write would lose its value.
        """
        return bool(self.referenced or self.triggered or self.extra)

    @property
    def carries(self) -> bool:
        """Whether rows are deleted and inserted again with the values of their extra columns.

        That is possible as no foreign key or trigger sees the delete, and needed as an update could clash.
        """
        return bool(self.extra and self.clashing and not self.referenced and not self.triggered)


def shape_of(con: Connection, target: Target, key: Sequence[str], columns: Sequence[Column]) -> Shape:
    written = {column.name for column in columns}
    referenced = rows_of(
        con,
        f"{TREE} SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_constraint f JOIN tree ON f.confrelid = tree.oid "
        "WHERE f.contype = 'f')",
        target.sql,
    )[0][0]
    triggers = _triggers(con, target)
    held = rows_of(
        con,
        "SELECT attname FROM pg_catalog.pg_attribute WHERE attrelid = $1::regclass AND attnum > 0 "
        "AND NOT attisdropped AND attgenerated = '' ORDER BY attnum",
        target.sql,
    )
    return Shape(
        referenced=referenced,
        triggered=bool(triggers),
        silencers=tuple(sql for sql, silences in triggers if silences),
        extra=tuple(name for (name,) in held if name not in written),
        clashing=tuple(_clashing(con, target, key, written)),
    )


def _triggers(con: Connection, target: Target) -> list[tuple[str, bool]]:
    """For each trigger, the statement that disables it, and whether it can prevent a row from changing."""
    found = rows_of(
        con,
        f"{TREE} SELECT n.nspname, c.relname, g.tgname, g.tgtype::int FROM tree "
        "JOIN pg_catalog.pg_trigger g ON g.tgrelid = tree.oid AND NOT g.tgisinternal AND g.tgparentid = 0 "
        "AND g.tgenabled <> 'D' JOIN pg_catalog.pg_class c ON c.oid = g.tgrelid "
        "JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace ORDER BY 1, 2, 3",
        target.sql,
    )
    return [
        (
            f"ALTER TABLE {Target(schema, table).sql} DISABLE TRIGGER {quoted(name)}",
            kind & _BEFORE_ROW == _BEFORE_ROW and bool(kind & _UPDATE_OR_DELETE),
        )
        for schema, table, name, kind in found
    ]


def _clashing(con: Connection, target: Target, key: Sequence[str], written: set[str]) -> Iterator[Unique]:
    """Leaves out indexes that contain the whole key, which cannot clash, and those whose columns never change."""
    found = rows_of(
        con,
        # As JSON: version 14 does not know indnullsnotdistinct.
        f"{TREE} SELECT i.indisexclusion, pg_catalog.to_jsonb(i) ->> 'indnullsnotdistinct' = 'true', "
        "(SELECT pg_catalog.json_agg(pg_catalog.json_build_array(a.attname, a.attnotnull) ORDER BY k.place)::text "
        "FROM pg_catalog.unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, place) "
        "LEFT JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE k.place <= i.indnkeyatts) "
        "FROM tree JOIN pg_catalog.pg_index i ON i.indrelid = tree.oid "
        "JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
        "WHERE (i.indisunique OR i.indisexclusion) AND i.indimmediate AND i.indisready AND NOT c.relispartition "
        "ORDER BY c.relname",
        target.sql,
    )
    for exclusion, nulls_clash, listed in found:
        required: dict[str | None, bool] = dict(json.loads(listed))
        plain = [name for name in required if name is not None]
        whole = len(plain) == len(required) and not exclusion and written.issuperset(plain)
        moves = None in required or bool((set(plain) - set(key)) & written)
        if not moves or (set(key) <= set(plain) and not exclusion):
            continue
        free = [name for name in plain if not required[name] and name not in key]
        blank = free[0] if whole and free and not nulls_clash else ""
        yield Unique(tuple(plain) if whole else (), blank)


def proven_unique(con: Connection, target: Target, key: Sequence[str]) -> bool:
    """Whether an index of the table already refuses duplicate keys."""
    found = rows_of(
        con,
        "SELECT (SELECT pg_catalog.count(*) FROM pg_catalog.unnest(i.indkey::int2[]) AS k (number) "
        "JOIN pg_catalog.pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number "
        "WHERE a.attname = ANY(ARRAY(SELECT pg_catalog.json_array_elements_text($2::json)))) = i.indnkeyatts "
        "FROM pg_catalog.pg_index i WHERE i.indrelid = $1::regclass AND i.indisunique AND i.indisvalid "
        "AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnatts = i.indnkeyatts",
        target.sql,
        json.dumps(list(key), ensure_ascii=False),
    )
    return any(whole for (whole,) in found)
