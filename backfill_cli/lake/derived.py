"""Derived tables in lakes: what they are made of, and beside what a copy of the sink compares them.

A derived table is a table with a claim and a marker like the job's own. Spark runs its SELECT over views of tables
at versions, so that the states before and after an epoch can be read at any time: see `upkeep`.
"""

from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from backfill_cli.contracts import ComparedDerived, Derives, EpochCommit, SinkTable, derived_table, own
from backfill_cli.contracts.refusals import same_target
from backfill_cli.errors import BackfillError, UsageError, in_config
from backfill_cli.formats.frames import struct_type
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.state import Claim, JobState
from backfill_cli.model.derived import Base, Derived
from backfill_cli.model.reports import PlannedDerived
from backfill_cli.model.schema import Columns, columns_of, names_of, same_type, shown
from backfill_cli.model.verify import DifferentRow
from backfill_cli.spark.api import DataFrame, F, SparkSession
from backfill_cli.spark.beside import session_beside
from backfill_cli.spark.names import backticked, quoted

if TYPE_CHECKING:
    from backfill_cli.derived.reach import Changes, Groups
    from backfill_cli.derived.rows import Maintained
    from backfill_cli.lake.sink import LakeSink

SPARK = "spark"
NAMED_KEYS = 5
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
    "spark.sql.caseSensitive": "false",
    "spark.sql.groupByAliases": "true",
    "spark.sql.groupByOrdinal": "true",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Of the session in which SELECTs run: what a text means must not depend on a setting of the config."""
_KEPT = ("byte", "short", "integer", "long", "float", "double", "string", "binary", "boolean", "date", "timestamp")
_FLOATS = ("float", "double")
_NAMED = {"byte": "tinyint", "short": "smallint", "long": "bigint", "string": "text", "binary": "blob"} | {
    "timestamp_ntz": "timestamp"
}
"""Types of Spark that other engines call otherwise."""
_COLLATIONS = "__COLLATIONS"
"""In the metadata of a column that has one."""
_Described = tuple[tuple[tuple[Derived, ...], tuple[SinkTable, ...]], "tuple[tuple[Maintained, SinkTable], ...]"]
"""What was described last, and as what."""


def bases(tables: Sequence[SinkTable]) -> tuple[Base, ...]:
    """What a SELECT can read, each as a view of ours."""
    from backfill_cli.derived.bases import bases_of

    views = {table.name: own.numbered(own.SOURCE, at) for at, table in enumerate(tables)}
    return bases_of(tables, lambda table: (table.target, views[table.name]))


def views_of(derived: Sequence[Derived]) -> Mapping[str, str]:
    return {one.name: own.numbered(own.DERIVED, at) for at, one in enumerate(derived)}


def ordered(derived: Sequence[Derived], tables: Sequence[SinkTable]) -> "tuple[Maintained, ...]":
    from backfill_cli.derived.order import ordered as of

    return of(derived, bases(tables), views_of(derived), SPARK)


def table_of(one: "Maintained", schema: str) -> SinkTable:
    """The derived table with the columns of its SELECT. schema: Spark's, as JSON."""
    names = {own.fold(name): name for name in names_of(schema)}
    key = tuple(names[own.fold(name)] for name in one.derived.key)
    return replace(derived_table(one.derived), key=key, schema=schema)


def spelled(table: SinkTable) -> tuple[tuple[str, str], ...]:
    """Its columns, and their types as Spark writes them."""
    return tuple((name, shown(one["type"]).upper()) for name, one in columns_of(table.schema).items())


@contextmanager
def explained(name: str, when: str = "") -> Iterator[None]:
    """What Spark says of a SELECT that it refuses names the derived table. when: this is run."""
    try:
        yield
    except Exception as exc:
        if isinstance(exc, BackfillError) or (said := refused_by_spark(exc)) is None:
            raise
        raise UsageError(f"derived table {name!r}: {when}{said}", in_config("correct derived.sql")) from exc


def refused_by_spark(exc: Exception) -> str | None:
    """What Spark says of a SELECT that it cannot analyse, or of rows that it cannot compute; None: neither."""
    from pyspark.errors import AnalysisException, PySparkException

    if not isinstance(exc, PySparkException):
        return None
    state = exc.getSqlState() or ""
    if not (isinstance(exc, AnalysisException) or state.startswith(("22", "42", "0A"))):
        return None
    return str(exc).strip().split("SQLSTATE", 1)[0].split("\n", 1)[0].strip()


def record_of(state: JobState, claim: Claim) -> Blobs:
    """The folder of files that say at which versions of its tables a derived table is exact."""
    return state.beside(f"exact-{claim.id}")


class LakeDerives(Derives):
    """`contracts.Derives` for a sink of lake tables."""

    def __init__(self, lake: "LakeSink") -> None:
        self._lake = lake
        self._last: _Described | None = None

    @cached_property
    def spark(self) -> SparkSession:
        """A session of its own: views and settings affect nothing else."""
        made = session_beside(self._lake.session())
        for name, value in SETTINGS.items():
            made.conf.set(name, value)
        return made

    def reads(self, derived: Sequence[Derived], tables: Sequence[SinkTable]) -> Mapping[str, tuple[str, ...]]:
        return {one.derived.name: one.reads for one in ordered(derived, tables)}

    def check(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        lives: Mapping[str, str],
        into: Collection[str] = (),
    ) -> tuple[PlannedDerived, ...]:
        from backfill_cli.derived.refused import is_live

        targets = {own.fold(live): name for name, live in lives.items()}
        for each in derived:
            if (table := targets.get(own.fold(each.target))) is not None:
                raise is_live(each.name, each.target, table)
        planned = dict(self._checked(job, derived, tables, True, into))
        return tuple(planned[one.name] for one in derived)

    def _checked(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        rehearse: bool,
        into: Collection[str],
    ) -> Iterator[tuple[str, PlannedDerived]]:
        """Each after those that it reads. Raises for one that cannot be kept."""
        from backfill_cli.derived.shown import found_by, notes_of, reads_of

        self._lake.require_keeps(derived)
        self._refuse_shared_targets(derived, tables)
        for one, table in self.described(derived, tables):
            columns = spelled(table)
            self._refuse_taken(job, table, into=table.name in into)
            if rehearse:
                self._rehearse(one, tables, derived)
            notes = notes_of(one, dict(columns), "")
            told = one.derived
            yield (
                told.name,
                PlannedDerived(
                    *(told.name, told.target, told.key, columns, reads_of(one), found_by(one)), notes=notes
                ),
            )

    def described(
        self, derived: Sequence[Derived], tables: Sequence[SinkTable]
    ) -> "Iterator[tuple[Maintained, SinkTable]]":
        """Each derived table with its columns, over empty views of all that it can read."""
        from backfill_cli.derived.spark import require_known, require_no_moment

        self._last = None
        seen = [columns_of(table.schema) for table in tables]
        for base in bases(tables):
            schema = next(table.schema for table in tables if table.name == base.name)
            self.empty(columns_of(schema)).createOrReplaceTempView(base.sql)
        views = views_of(derived)
        for one in ordered(derived, tables):
            with explained(one.derived.name):
                schema = self.select(one.text).schema.json()
            require_known(one.derived)
            require_no_moment(one.derived, seen)
            self._require_settled(one)
            table = table_of(one, schema)
            _require_types(table)
            self.empty(columns_of(schema)).createOrReplaceTempView(views[one.derived.name])
            seen.append(columns_of(schema))
            yield one, table

    def described_as_before(
        self, derived: Sequence[Derived], tables: Sequence[SinkTable]
    ) -> "Sequence[tuple[Maintained, SinkTable]]":
        """As `described`, once as long as tables and SELECTs stay as they are; the views can have rows."""
        told = tuple(derived), tuple(tables)
        if self._last is None or self._last[0] != told:
            self._last = told, tuple(self.described(derived, tables))
        return self._last[1]

    def _require_settled(self, one: "Maintained") -> None:
        """What its FROM computes has one value each time."""
        from backfill_cli.derived.reading import READ_THAT, refusal
        from backfill_cli.derived.settled import judged

        for each in [found for select in one.computed for found in judged(select, one.engine)]:
            with explained(one.derived.name):
                schema = self.select(each.sql).schema.jsonValue()
            if what := each.unsettled([_kind(column) for column in schema["fields"]]):
                raise refusal(one.derived.name, f"{what}, inside FROM", READ_THAT)

    def select(self, text: str) -> DataFrame:
        return self.spark.sql(text)

    def empty(self, columns: Columns) -> DataFrame:
        return self.spark.createDataFrame([], struct_type(columns))

    def _rehearse(self, one: "Maintained", tables: Sequence[SinkTable], derived: Sequence[Derived]) -> None:
        """Every query that keeps it has run over empty views: what would fail in each commit is refused now."""
        from backfill_cli.derived.order import ordered as of

        known = {base.name: base for base in bases(tables)}
        for other in of(derived, bases(tables), views_of(derived), SPARK):
            known[other.derived.name] = other.base((), views_of(derived)[other.derived.name])
        view = views_of(derived)[one.derived.name]
        with explained(one.derived.name, "as a change would be applied: "):
            types = self.types(one, view)
            for name in one.reads:
                base = known[name]
                listed = ", ".join(map(backticked, base.by))
                for change in (f"(SELECT {listed} FROM {base.sql} WHERE FALSE)", None)[0 if base.by else 1 :]:
                    changes: Changes = {name: change}
                    groups = self.groups_of(one)
                    for keys, selects in zip(groups.relations, one.reached_in(changes, groups), strict=True):
                        for select in selects:
                            (found := self.select(select)).toArrow()
                            found.createOrReplaceTempView(keys)
                    for select in one.reached(changes, types, groups):
                        self.select(select).toArrow()
            listed = ", ".join(
                f"{backticked(name)} AS {column}"
                for name, column in zip(one.pushed, one.key_columns, strict=False)
            )
            relation = f"(SELECT {listed or f'1 AS {own.KEY}'} FROM {view})"
            self.select(one.limited(relation, None, types)).toArrow()
            row = own.SOURCE
            self.select(f"SELECT * FROM {view} AS {row} WHERE {one.among(relation, row)}").toArrow()

    @staticmethod
    def groups_of(one: "Maintained") -> "Groups":
        """The views of keys that changes reach in what its FROM computes, in either state: both can be read."""
        from backfill_cli.derived.reach import Groups

        return Groups(one.computed, [own.numbered(own.GROUPS, at) for at, _ in enumerate(one.computed)])

    def types(self, one: "Maintained", view: str) -> list[str]:
        """SQL of the types of its pushed columns, where those of its parts can be others. view: of its rows."""
        if not one.converts:
            return []
        found = {own.fold(field.name): field.dataType.simpleString() for field in self.spark.table(view).schema}
        return [found[name] for name in one.pushed]

    def _refuse_shared_targets(self, derived: Sequence[Derived], tables: Sequence[SinkTable]) -> None:
        everything = (*tables, *map(derived_table, derived))
        places, seen = self._lake.places(everything), dict[str, SinkTable]()
        for one in everything:
            for place in (*places.get(one.name, ()), own.fold(one.target)):
                if (twin := seen.setdefault(place, one)).name != one.name:
                    raise same_target(twin.name, one.name, one.target)

    def _refuse_taken(self, job: str, table: SinkTable, into: bool) -> None:
        """A table that the job has not filled does not exist, or is empty and has the columns."""
        self._lake.refuse_other_job(job, table)
        claim = self._lake.claims(job).get(table.name)
        if claim is not None and claim.place != self._lake.claim_at(table).place:
            said = f"derived table {table.name!r}: it is in {claim.place}, and a lake moves no table"
            raise UsageError(said, in_config("leave derived.target as it was, or add another [[derived]] for it"))
        self.require_ours(job, table, claim, into)

    def require_ours(self, job: str, table: SinkTable, claim: Claim | None, into: bool = False) -> bool:
        """Whether what is at the table's place has its columns; False if there is nothing, or if it is replaced.

        Raises SinkInUse for a table that the job did not fill, and that has rows or other columns. into: it is to
        be the job's, whatever it has.
        """
        from backfill_cli.derived.refused import not_ours, other_columns

        if (there := self._lake.columns_at(table)) is None:
            return False
        wanted = columns_of(table.schema)
        same = {own.fold(name) for name in there} == {own.fold(name) for name in wanted} and all(
            same_type(there[name]["type"], one["type"]) for name, one in wanted.items() if name in there
        )
        ours = into or (claim is not None and self._lake.was_filled(job, claim))
        if not ours and self._lake.has_rows(table):
            raise not_ours(table.target, table.name, replaceable=same or self._lake.replaces_columns)
        if not same and not (ours and self._lake.replaces_columns):
            raise other_columns(table.target, table.name, spelled(table))
        return same

    def prepare(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        into: Collection[str] = (),
    ) -> None:
        """Starts no Spark where nothing is missing."""
        known, markers = self._lake.claims(job), self._lake.committed(job)
        gone = [
            one.name
            for one in derived
            if one.name in known
            and self._lake.columns_at(derived_table(one)) is None
            and not markers[one.name].attempt
            and self._lake.was_filled(job, known[one.name])
        ]
        for name in gone:  # somebody has dropped it: the next commit fills it
            self._lake.claim_anew(job, name)
        if any(one.name not in known for one in derived):
            for _ in self._checked(job, derived, tables, False, into):
                continue
            found = [table for _, table in self.described(derived, tables) if table.name not in known]
            self._lake.claim_derived(job, found, into)

    def renew(self, job: str, derived: Sequence[Derived]) -> None:
        for one in derived:
            self._lake.claim_anew(job, one.name)

    def rehearse(
        self,
        job: str,
        derived: Sequence[Derived],
        tables: Sequence[SinkTable],
        names: Collection[str],
        into: Collection[str] = (),
    ) -> None:
        markers, claims = self._lake.committed(job), self._lake.claims(job)
        tried = {*names, *(one.name for one in derived if one.name not in markers or not markers[one.name].epoch)}
        found = list(self.described(derived, tables))
        views = {base.name: base.sql for base in bases(tables)} | dict(views_of(derived))
        for table in (*tables, *(table for _, table in found)):
            claim = claims.get(table.name) or self._lake.claim_at(table)
            if not table.side and (now := self._lake.now(job, table.name, claim)) is not None:
                self._lake.rows(self.spark, table, claim, now[0]).createOrReplaceTempView(views[table.name])
        for one, table in found:
            if one.derived.name in tried or not tried.isdisjoint(one.reads):
                tried.add(one.derived.name)
                with computing(one.derived.name):
                    rows = self.select(one.text).toDF(*names_of(table.schema))
                    rows.write.format("noop").mode("overwrite").save()
                    require_unique(one, table, rows)
                rows.createOrReplaceTempView(views[one.derived.name])

    # In a commit, and for verify

    def require_free(self, commit: EpochCommit, claims: Mapping[str, Claim]) -> None:
        """Raises SinkInUse, before anything is written, for a table of others where a derived one is to be."""
        from backfill_cli.derived.refused import not_ours

        for table in map(derived_table, commit.derived):
            claim = claims.get(table.name)
            if claim is None or self._lake.was_filled(commit.job, claim):
                continue
            if self._lake.columns_at(table) is not None and self._lake.has_rows(table):
                raise not_ours(table.target, table.name)

    def keep(self, commit: EpochCommit, state: JobState) -> None:
        """Each derived table of the commit equals its SELECT, and is at the commit's epoch."""
        from backfill_cli.lake.upkeep import Keeping

        if commit.derived:
            keeping = Keeping(self._lake, self, commit, state)
            keeping.keep()
            self.took_ms = keeping.took.ms

    def compare(
        self,
        derived: Derived,
        others: Sequence[Derived],
        tables: Sequence[SinkTable],
        named: int,
        frame: Callable[[SparkSession, SinkTable], DataFrame],
        there: Container[str],
        filled: bool,
    ) -> ComparedDerived:
        """See `contracts.SinkCopy.compare`. frame: a table's rows in the copy. there: the tables that exist."""
        if not (derived.name in there or filled):
            return ComparedDerived(filled=False, compared=False)
        kinds, lacking = dict[str, SinkTable](), set[str]()
        one = None
        for found, table in self.described(others, tables):
            kinds[table.name] = table
            if found.derived == derived:
                one = found
                break
            if table.name not in there or not lacking.isdisjoint(found.reads):
                lacking.add(table.name)
        assert one is not None
        if not lacking.isdisjoint(one.reads):
            return ComparedDerived(filled=filled, compared=False)
        views = {base.name: base.sql for base in bases(tables)} | dict(views_of(others))
        known = {table.name: table for table in tables} | kinds
        for name in one.reads:
            frame(self.spark, known[name]).createOrReplaceTempView(views[name])
        table = known[derived.name]
        with computing(derived.name):
            if derived.name in there:
                return _compared(self.spark, one, table, frame(self.spark, table), named, filled)
            rows = self.select(one.text).count()
            return ComparedDerived(rows, missing=rows, gone=True)


@contextmanager
def computing(name: str) -> Iterator[None]:
    """What Spark says of rows that the SELECT cannot compute is raised as the fault of the derived table."""
    from backfill_cli.derived.refused import uncomputed

    try:
        yield
    except Exception as exc:
        if isinstance(exc, BackfillError) or (said := refused_by_spark(exc)) is None:
            raise
        raise uncomputed(name, said) from exc


def require_unique(one: "Maintained", table: SinkTable, rows: DataFrame) -> None:
    """No two of these rows share a key. Raises BadData, which names some that do."""
    from backfill_cli.derived.refused import twice_in

    if one.unique:
        return
    grouped = rows.groupBy(*map(quoted, table.key)).agg(F.count(F.lit(1)).alias(own.COUNT))
    shown_key = F.concat_ws(", ", *(F.coalesce(quoted(name).cast("string"), F.lit("NULL")) for name in table.key))
    many = grouped.where(F.col(own.COUNT) > 1)
    twice = many.select(shown_key.alias("key"), own.COUNT).limit(NAMED_KEYS).toArrow()
    if twice.num_rows:
        pairs = sorted(zip(twice.column(0).to_pylist(), twice.column(1).to_pylist(), strict=True))
        raise twice_in(one.derived.name, one.derived.key, pairs)


def _require_types(table: SinkTable) -> None:
    """Its columns are of plain types, and its key of those whose equal values are written the same."""
    from backfill_cli.derived.reading import refusal

    own.refuse_fields(f"derived table {table.name!r}", _fields(table.schema))
    for name, one in columns_of(table.schema).items():
        kind = one["type"]
        if not is_plain(one):
            what = f"column {name!r} is {shown(kind)}, which a derived table cannot have in a lake"
            raise refusal(table.name, what, "CAST it to a plain type, or leave it out")
        if _COLLATIONS in one.get("metadata", {}):
            what = f"column {name!r} has a collation, which a table in a lake cannot have"
            raise refusal(table.name, what, "use a function of the text instead: lower(name)")
        if name in table.key and kind in _FLOATS:
            what = f"key column {name!r} is {shown(kind)}: floating-point numbers identify no row"
            raise refusal(table.name, what, "CAST it to a decimal in derived.sql")


def is_plain(column: Mapping[str, Any]) -> bool:
    """Whether its type is one of whose values Spark knows which are equal."""
    kind = column["type"]
    return isinstance(kind, str) and (kind in _KEPT or kind == "timestamp_ntz" or kind.startswith("decimal("))


def _kind(column: Mapping[str, Any]) -> str:
    """The SQL name of a column's type; of a struct, that of a field of which equal values can differ, if any."""
    from backfill_cli.derived.contributions import is_key

    kind = column["type"]
    if not isinstance(kind, str):
        kinds = [_kind(one) for one in kind["fields"]] if kind["type"] == "struct" else [shown(kind)]
        return next((one for one in kinds if not is_key(one)), "text")
    return f"{kind} with a collation" if _COLLATIONS in column.get("metadata", {}) else _NAMED.get(kind, kind)


def _fields(schema: str) -> list[dict[str, object]]:
    return [dict(one) for one in columns_of(schema).values()]


def _compared(
    spark: SparkSession, one: "Maintained", table: SinkTable, held: DataFrame, named: int, filled: bool
) -> ComparedDerived:
    from backfill_cli.derived.refused import different, near

    columns: Columns = columns_of(table.schema)
    names, row = list(columns), own.ROW
    spark.sql(one.text).toDF(*names).createOrReplaceTempView(own.ROWS)
    held.createOrReplaceTempView(own.HELD)
    same = " AND ".join(f"s.{backticked(name)} <=> t.{backticked(name)}" for name in table.key)
    differs = {}
    for name in names:
        if name not in table.key:
            s, t = f"s.{backticked(name)}", f"t.{backticked(name)}"
            alike = f"{s} <=> {t}"
            if columns[name]["type"] in _FLOATS:
                alike = f"coalesce({alike} OR ({near(s, t, 'DOUBLE')}), FALSE)"
            differs[name] = f"NOT ({alike})"
    both = (
        f"FROM (SELECT *, 1 AS {row} FROM {own.ROWS}) AS s "
        f"FULL OUTER JOIN (SELECT *, 1 AS {row} FROM {own.HELD}) AS t ON {same or f's.{row} = t.{row}'}"
    )
    changed = " OR ".join(differs.values()) or "FALSE"
    told = spark.sql(
        f"SELECT count(*) FILTER (WHERE t.{row} IS NULL) AS missing, "
        f"count(*) FILTER (WHERE s.{row} IS NULL) AS extra, "
        f"count(*) FILTER (WHERE s.{row} = t.{row} AND ({changed})) AS changed, "
        f"(SELECT count(*) FROM {own.ROWS}) AS ours, (SELECT count(*) FROM {own.HELD}) AS held {both}"
    ).toArrow()
    counts = {name: int(told.column(name)[0].as_py()) for name in told.column_names}
    twice = (counts["held"] - counts["extra"]) - (counts["ours"] - counts["missing"])
    found: list[DifferentRow] = []
    if counts["missing"] or counts["extra"] or counts["changed"]:
        listed = [*table.key, *differs]
        texts = [f"CAST({side}.{backticked(name)} AS string)" for name in listed for side in "st"]
        tests = [f"coalesce({test}, TRUE)" for test in differs.values()]
        items = [f"s.{row}", f"t.{row}", *texts, *tests]
        numbered = ", ".join(f"{item} AS {own.numbered(own.VALUE, at)}" for at, item in enumerate(items))
        keys = ", ".join(f"coalesce(s.{backticked(name)}, t.{backticked(name)}) NULLS LAST" for name in table.key)
        first = f"ORDER BY {keys} " * bool(keys)
        rows = spark.sql(
            f"SELECT {numbered} {both} WHERE t.{row} IS NULL OR s.{row} IS NULL OR ({changed}) "
            f"{first}LIMIT {named}"
        ).toArrow()
        for one_row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            found += different(listed, len(table.key), *one_row)
    return ComparedDerived(
        *(counts["ours"], counts["held"], counts["missing"], counts["extra"] + twice, counts["changed"]),
        different=tuple(found[:named]),
        filled=filled,
    )
