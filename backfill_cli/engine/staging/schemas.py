"""Schemas while staging: what the transform makes of one, and which of its changes a job can follow."""

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER, BadData, UsageError
from backfill_cli.model.schema import columns_of, names_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from backfill_cli.config.sections import Transform


def sink_schema(spark: "SparkSession", source: str, transform: "Transform") -> str:
    """The sink's schema as JSON: `source` after the transform. Raises UsageError for SQL that does not fit it."""
    if transform.is_empty:
        return source
    from backfill_cli.engine.staging.transform import fitting, rows

    with fitting():
        return rows(_empty(spark, source), transform).schema.json()


def require_own_columns(spark: "SparkSession", source: str, transform: "Transform") -> None:
    """Each item of `select` names columns of the source only, not another item's alias. Raises UsageError.

    Changes cannot compute such an item; and it would mean something else as soon as the upstream adds a column of
    that name.
    """
    from backfill_cli.config.transforms import aliases, naming
    from backfill_cli.engine.staging.transform import fitting

    select = transform.select or ()
    for item in naming(select, aliases(select) - _folded(source)):
        with fitting():
            _empty(spark, source).selectExpr(item)


def require_same_meaning(
    spark: "SparkSession", table: str, before: str, source: str, transform: "Transform"
) -> None:
    """No item of `select` that named another one's alias names a column that the upstream added. Raises BadData.

    before, source: the columns known so far, and those with the added ones. A start refuses such an item; a job of
    an older version can have it.
    """
    from backfill_cli.config.transforms import aliases, naming

    select = transform.select or ()
    made = aliases(select) - _folded(before)
    added = [name for name in columns_of(source) if name.lower() in made]
    for item in naming(select, {name.lower() for name in added}):
        try:
            require_own_columns(spark, before, transform)
        except UsageError as exc:
            raise BadData(
                f"table {table!r}: column {', '.join(map(repr, added))} was added upstream: in {item!r}, that "
                "name meant what the transform makes, and would mean this column from now on",
                f"write that expression out, without the name of another one; then {START_OVER}",
            ) from exc


def _empty(spark: "SparkSession", source: str) -> "DataFrame":
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType.fromJson(json.loads(source)))


def _folded(schema: str) -> set[str]:
    return {name.lower() for name in columns_of(schema)}


def require_apart(table: str, schema: str) -> None:
    """No column that the upstream added has a name that the transform gives to another one. Raises BadData.

    schema: the table's columns after the transform.
    """
    seen: dict[str, str] = {}
    for name in names_of(schema):
        if (folded := own.fold(name)) in seen:
            raise BadData(
                f"table {table!r}: {seen[folded]!r} and {name!r}: a column was added upstream, "
                "with the name of one that the transform makes",
                f"give the column of the transform another name (AS), or select without *; then {START_OVER}",
            )
        seen[folded] = name


def evolved(known: Mapping[str, str], seen: Mapping[str, str]) -> dict[str, str]:
    """The source schemas with columns that were added. Any other change stops the job before it is applied.

    known, seen: table -> Spark schema as JSON. Raises BadData naming the table, the column and its change.
    """
    merged = dict(known)
    for table, text in seen.items():
        before = columns_of(known[table])
        after = columns_of(text)
        gone = [name for name in before if name not in after]
        other = [n for n in after if n in before and after[n]["type"] != before[n]["type"]]
        alike, ours = _alike_but_for_case(after), list(filter(own.is_own, after))
        if gone or other or alike or ours:
            what = [f"column {n!r} is gone" for n in gone]
            what += [f"column {n!r}: {before[n]['type']} became {after[n]['type']}" for n in other]
            what += [f"column {n!r} differs from {m!r} only in case, which sinks ignore" for m, n in alike]
            what += [f"column {n!r} has a name that is backfill's own" for n in ours]
            refused = [*(name for _, name in alike), *ours]  # at a start, too
            rename = f"rename {', '.join(map(repr, refused))} upstream; then " if refused else ""
            raise BadData(
                f"table {table!r}: the upstream's schema changed: {'; '.join(what)}",
                "only added columns can be followed, and undoing the change does not remove it from the "
                f"upstream's log: {rename}{START_OVER}",
            )
        added = [f for n, f in after.items() if n not in before]
        if added:
            fields = [*before.values(), *({**f, "nullable": True} for f in added)]
            merged[table] = json.dumps({"type": "struct", "fields": fields})
    return merged


def _alike_but_for_case(names: Iterable[str]) -> list[tuple[str, str]]:
    first: dict[str, str] = {}
    return [(first[own.fold(n)], n) for n in names if first.setdefault(own.fold(n), n) != n]
