"""What happens to a row between upstream and sink, and which changes of its columns can be followed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from backfill_cli.config import JobConfig
from backfill_cli.config.sections import Transform
from backfill_cli.contracts import own
from backfill_cli.errors import START_OVER, BadData, UsageError
from backfill_cli.model.schema import columns_of, names_of
from backfill_cli.spark.api import Column, DataFrame, F, Session, SparkSession
from backfill_cli.spark.failures import cause_in
from backfill_cli.spark.names import quoted

_DATA_EXCEPTION = "22"
"""The SQLSTATE class for a value that an expression cannot take: a division by zero, a cast, an overflow."""


def failure(exc: Exception, config: JobConfig) -> BadData | None:
    """The error for a Spark failure caused by a value that does not suit the transform; None for any other."""
    from pyspark.errors import PySparkException

    if not isinstance(exc, PySparkException) or not (exc.getSqlState() or "").startswith(_DATA_EXCEPTION):
        return None
    if all(config.transform_of(table.name).is_empty for table in config.tables):
        return None
    said, _, where = str(exc).partition("== SQL")
    said = " ".join(said.partition(" SQLSTATE")[0].partition(" If necessary set ")[0].split())
    sql = " ".join(line for line in where.splitlines()[1:] if line.strip(" ^=")).strip()
    return BadData(
        f"the transform cannot be computed for a row{f', in {sql!r}' if sql else ''}: {said}",
        "correct [transform]: use try_divide, try_cast, or a where that excludes such rows; then " + START_OVER,
    )


@contextmanager
def fitting() -> Iterator[None]:
    """Raises UsageError for SQL of the transform that does not fit the columns."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as exc:
        raise UsageError(
            f"the transform does not fit the upstream's columns: {cause_in(str(exc))}",
            "correct [transform]; then " + START_OVER,
        ) from exc


def rows(frame: DataFrame, transform: Transform) -> DataFrame:
    """Snapshot rows in the sink's form: `where`, then `select`. The frame may lack columns that no part needs."""
    return _formed(_with_left_out(frame, transform), transform)


def _formed(frame: DataFrame, transform: Transform) -> DataFrame:
    kept = frame if transform.where is None else frame.where(transform.where)
    return kept.selectExpr(*(transform.select or ["*"]))


def _with_left_out(frame: DataFrame, transform: Transform) -> DataFrame:
    """The frame with what a `* EXCEPT (…)` names, which must exist: NULL where the source did not read it."""
    if transform.select is None:
        return frame
    from backfill_cli.config.pushdown import left_out

    there = {name.lower() for name in frame.columns}
    return frame.withColumns({name: F.lit(None) for name in sorted(left_out(transform) - there)})


def images(changes: DataFrame) -> Column:
    """For counting: not NULL for a change that only holds the state before an update (contracts.ChangeReads)."""
    from pyspark.sql.types import StructType

    place = changes.schema[own.SEQ].dataType
    told = isinstance(place, StructType) and "image" in place.names
    return F.when(F.col(f"{own.SEQ}.image"), 1) if told else F.lit(None)


def shaped(net: DataFrame, transform: Transform, lacking: Mapping[str, str] | None = None) -> DataFrame:
    """Net changes in the sink's form, `(own.OP, [own.UNSENT,] columns…)`: a row that `where` excludes is a 'D'.

    net: as from cdc.net. lacking: of the columns that rows can lack, the sink's names of those that it receives;
    no expression computes with a column that rows can lack.
    """
    if transform.is_empty:
        return net
    row = net.drop(own.UNSENT)
    if transform.where is not None:
        stays = f"{own.OP} = 'U' AND coalesce(({transform.where}), false)"
        net = net.withColumn(own.OP, F.expr(f"CASE WHEN {stays} THEN 'U' ELSE 'D' END"))
    named = F.array(*(F.when(F.array_contains(own.UNSENT, c), F.lit(name)) for c, name in (lacking or {}).items()))
    unsent = [F.array_compact(named).alias(own.UNSENT)] if lacking else []
    return net.select(own.OP, *unsent, *_selected(row, transform.select or ["*"]))


def _selected(net: DataFrame, select: Sequence[str]) -> list[Column]:
    """The select list over `(own.OP, row…)`; its star stands only for the row's columns.

    Expressions are evaluated only for rows that stay: a row that `where` excludes, or a deleted row that has only
    its key, must not fail an expression that was never meant for it.
    """
    row = net.drop(own.OP)
    columns = []
    for text in select:
        with fitting():  # an older version let an item name another one's alias, which only rows can compute
            names = row.selectExpr(text).columns
        if text.lstrip().startswith("*"):
            columns += [quoted(name) for name in names]
        elif _is_reference(text):
            columns.append(F.expr(text))
        else:
            columns.append(F.when(F.col(own.OP) == "U", F.expr(text)).alias(names[0]))
    return columns


def _is_reference(text: str) -> bool:
    """Whether a select item is a plain column, possibly renamed: key columns always are."""
    import sqlglot
    from sqlglot import exp

    item = sqlglot.parse_one(text, dialect="spark")
    plain = item.this if isinstance(item, exp.Alias) else item
    return isinstance(plain, exp.Column) and len(plain.parts) == 1


def sink_schema(session: Session, source: str, transform: Transform) -> str:
    """The sink's schema as JSON: `source` after the transform. Raises UsageError for SQL that does not fit it."""
    if transform.is_empty:
        return source
    with fitting():
        return _formed(_empty(session(), source), transform).schema.json()


def require_own_columns(session: Session, source: str, transform: Transform) -> None:
    """Each item of `select` names columns of the source only, not another item's alias. Raises UsageError.

    Changes cannot compute such an item; and it would mean something else as soon as the upstream adds a column of
    that name.
    """
    if not (select := transform.select):
        return
    from backfill_cli.config.transforms import aliases, naming

    for item in naming(select, aliases(select) - _folded(source)):
        with fitting():
            _empty(session(), source).selectExpr(item)


def require_same_meaning(session: Session, table: str, before: str, source: str, transform: Transform) -> None:
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
            require_own_columns(session, before, transform)
        except UsageError as exc:
            raise BadData(
                f"table {table!r}: column {', '.join(map(repr, added))} was added upstream: in {item!r}, that "
                "name meant what the transform makes, and would mean this column from now on",
                "write that expression out, without the name of another one; then " + START_OVER,
            ) from exc


def _empty(spark: SparkSession, source: str) -> DataFrame:
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType.fromJson(json.loads(source)))


def _folded(schema: str) -> set[str]:
    return {name.lower() for name in columns_of(schema)}


def require_apart(table: str, schema: str) -> None:
    """No column that the upstream added has a name that the transform gives to another one. Raises BadData.

    schema: the table's columns after the transform.
    """
    for first, name in own.twins(names_of(schema)):
        raise BadData(
            f"table {table!r}: {first!r} and {name!r}: a column was added upstream, "
            "with the name of one that the transform makes",
            "give the column of the transform another name (AS), or select without *; then " + START_OVER,
        )


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
        alike, ours = list(own.twins(after)), list(filter(own.is_own, after))
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
                f"upstream's log: {rename}" + START_OVER,
            )
        added = [f for n, f in after.items() if n not in before]
        if added:
            fields = [*before.values(), *({**f, "nullable": True} for f in added)]
            merged[table] = json.dumps({"type": "struct", "fields": fields})
    return merged
