"""Writes one table's part of an epoch as one commit of its Delta table, which carries the transaction's number."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from backfill_cli.cdc.net import over
from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import LESS_OFTEN, duplicate_keys
from backfill_cli.errors import BackfillError, Fatal, Transient, free_space
from backfill_cli.lake.delta.commits import faulty
from backfill_cli.lake.delta.edge import Where, delta_errors, sql_at
from backfill_cli.lake.delta.plain import plain_files, rows_met, version_files
from backfill_cli.lake.merge import (
    LONGEST_NAME,
    Bounds,
    changes,
    inserts,
    merge_into,
    refuse_duplicates,
    refuse_lost,
    refuse_partitions,
    staged_of,
    unique_in_files,
)
from backfill_cli.lake.plain_files import bounded
from backfill_cli.model.schema import columns_of, names_of
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.failures import cause_in
from backfill_cli.spark.names import quoted
from backfill_cli.spark.object_store import meant

APP, NUMBER = "spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion"
NULL_IN_HIVE = "__HIVE_DEFAULT_PARTITION__"
YEAR_1_US = -62_135_596_800_000_000
_LOST = (
    f"'', {NULL_IN_HIVE}, U+0000, bytes that are not UTF-8, a time before the year 1, or what is too long for a "
    "folder's name"
)
_ESCAPED = r"""[\x01-\x1F\x7F"#%'*/:=?\\{\[\]^]"""
"""Characters for which a folder's name has three."""


class Overtaken(Exception):
    """Another commit with a number of this application got ahead of ours."""


def apply(
    session: SparkSession, commit: EpochCommit, table: SinkTable, where: Where, app: str, number: int
) -> None:
    """One commit put the epoch's rows and the number in the table, or was skipped since the number is not newer.

    session: the sink's own. Raises BadData for duplicate keys, Overtaken, and Transient if commits of other
    writers conflict.
    """
    staged = staged_of(commit, table)
    added, changed = inserts(session, commit, table), changes(session, commit, table)
    with delta_writing(table, where):
        rows = changed if added is None else added
        if added is not None and changed is not None:
            rows = over(added, changed, table.key, staged.partial)
        if rows is not None:  # netted: a row that the epoch also deletes or corrects is not written
            require_representable(rows, table, where)
        if staged.truncated:
            with _numbered(session, app, number):
                _replace(session, table, where, rows)
        elif added is not None and changed is None and table.plain_inserts:
            with _numbered(session, app, number):
                added.write.format("delta").mode("append").save(where.uri)
        elif rows is not None:
            net = rows if own.OP in rows.columns else rows.select(F.lit("U").alias(own.OP), "*")
            files, held = (*staged.inserts, *staged.changes), partial(_rows, session, where)
            marked, met = _numbered(session, app, number), partial(_rows_met, where, table)
            merge_into(sql_at(where), net, files, commit, table, held, met, marked)


@contextmanager
def _numbered(session: SparkSession, app: str, number: int) -> Iterator[None]:
    """Any write in the block is the commit with this number, so do everything else before."""
    session.conf.set(APP, app)
    session.conf.set(NUMBER, str(number))
    try:
        yield
    finally:
        session.conf.unset(APP)
        session.conf.unset(NUMBER)


def _rows(session: SparkSession, where: Where) -> DataFrame:
    return session.read.format("delta").load(where.uri)


def require_unique(session: SparkSession, commit: EpochCommit, table: SinkTable, where: Where) -> None:
    """The snapshot, which this epoch completes, has no duplicate key: a later change would match both rows.

    Checked before the commit, so that nobody can read rows that are refused. Raises BadData naming keys.
    """
    staged = staged_of(commit, table)
    if table.plain_inserts and not staged.truncated and _unique_in_files(session, commit, table, where):
        return
    keys = [quoted(name) for name in table.key]
    with delta_writing(table, where):
        added = inserts(session, commit, table)
        rows = _rows(session, where).select(*keys)
        if added is not None:
            new = added.select(*keys)
            if not table.plain_inserts:
                rows = rows.join(new, list(table.key), "left_anti")
            rows = new if staged.truncated else rows.unionByName(new)
        refuse_duplicates(table, rows)


def _unique_in_files(session: SparkSession, commit: EpochCommit, table: SinkTable, where: Where) -> bool:
    """Whether the files of the table and the epoch show by themselves that no key is duplicated."""
    staged = staged_of(commit, table)
    columns, first = columns_of(table.schema), table.key[0]
    keys, kind = {name: columns[name] for name in table.key}, columns[first]["type"]
    if not isinstance(kind, str) or not commit.folder.startswith("/"):
        return False
    new = [bounded(f"{commit.folder.rstrip('/')}/{file.path}", first, kind) for file in staged.inserts]
    return unique_in_files(session, plain_files(where, None, first, keys, new), table.key, keys)


def _replace(session: SparkSession, table: SinkTable, where: Where, rows: DataFrame | None) -> None:
    """The table has only the epoch's rows. rows: snapshot rows, or net changes."""
    names = [quoted(name) for name in names_of(table.schema)]
    final = _rows(session, where).where("false") if rows is None else rows
    if own.UNSENT in final.columns:
        refuse_lost(table, final)
    if own.OP in final.columns:
        final = final.where(f"{own.OP} = 'U'")
    writer = final.select(*names).write.format("delta").mode("overwrite")
    (writer.option("overwriteSchema", "true") if table.derived else writer).save(where.uri)


def _rows_met(where: Where, table: SinkTable, bounds: Bounds | None) -> int | None:
    """How many rows of the table the MERGE reads at most; None if the log does not tell."""
    with suppress(BackfillError), delta_errors(where.shown):
        return rows_met(where.open(), table.key[0], bounds)
    return None


def require_representable(rows: DataFrame, table: SinkTable, where: Where) -> None:
    """Raises BadData naming up to five rows with values that the table's partition columns cannot hold.

    rows: those that are about to be written; those that are about to be deleted do not count. Delta's log holds
    such values as text: two texts and empty bytes become NULL, other bytes are replaced, and times before the year
    1 lose their sign. A row with NULL in its key is found by no change.
    """
    opened = where.open()
    metadata, columns = opened.metadata(), columns_of(table.schema)
    there = {name.lower(): name for name in columns}
    parts = [there[name.lower()] for name in metadata.partition_columns if name.lower() in there]
    in_path = where.local and metadata.configuration.get("delta.columnMapping.mode", "none") == "none"
    tests = {name: test for name in parts if (test := _lost(name, columns[name]["type"], in_path)) is not None}
    refuse_partitions(rows, table, where.shown, tests, _LOST)


def _lost(name: str, kind: Any, in_path: bool) -> Column | None:
    """Under which condition a value is lost; None if the type has no such value."""
    if kind == "timestamp":
        return F.unix_micros(quoted(name)) < YEAR_1_US
    if kind not in ("string", "binary"):
        return None
    text = quoted(name).cast("string")
    lost = text.isin("", NULL_IN_HIVE) | ~F.is_valid_utf8(text) | text.contains("\0")
    if in_path:
        room = LONGEST_NAME - len(f"{name}=".encode())
        lost = lost | (F.octet_length(F.regexp_replace(text, _ESCAPED, "%00")) > room)
    return lost


@contextmanager
def delta_writing(table: SinkTable, where: Where) -> Iterator[None]:
    """An error of Delta that Spark raises in the block becomes one of ours, which names the table."""
    try:
        yield
    except (BackfillError, Overtaken):
        raise
    except Exception as exc:
        meant = _meaning(table, where, exc)
        if meant is None:
            raise
        raise meant from exc


def _meaning(table: SinkTable, where: Where, exc: Exception) -> Exception | None:
    text = str(exc)
    first = cause_in(text)
    if (of_store := meant(where.shown, text)) is not None:
        return of_store
    if "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW" in text:
        return duplicate_keys(table, [])
    if "ConcurrentTransaction" in text or "DELTA_CONCURRENT_TRANSACTION" in text:
        return Overtaken(first)
    if "DELTA_CONCURRENT" in text or "ConcurrentModification" in text or "ProtocolChanged" in text:
        return Transient(
            f"{where.shown}: another writer's commit changed the same rows: {first}",
            LESS_OFTEN,
        )
    if "No space left" in text:
        return Transient(f"{where.shown}: no space left on its disk", free_space(where.folder))
    if "DELTA_" in text:
        return Fatal(
            f"{where.shown}: Delta refuses the commit: {first}",
            "change the table's properties that the message names",
        )
    return faulty(where, partial(version_files, where))
