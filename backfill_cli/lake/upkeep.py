"""Derived tables are kept exact in a lake: after the tables of an epoch, each by a commit of its own.

What a change reaches is looked for in the tables at two versions: those at which the derived table was exact,
which a record beside it names, and those that the epoch made. So whoever continues after a kill between the
commits finds the same rows again. Where the record, or an old version, can no longer be read, or somebody else
changed rows of a table in between, the derived table is filled whole.
"""

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSelector

from backfill_cli.contracts import EpochCommit, SinkTable, own
from backfill_cli.contracts.refusals import marker_gone, refuse_old_token
from backfill_cli.derived.took import Took
from backfill_cli.errors import RETRIED, BackfillError, BadData, Transient
from backfill_cli.failpoint import hit
from backfill_cli.formats.frames import reader
from backfill_cli.formats.listing import place
from backfill_cli.lake.derived import (
    LakeDerives,
    bases,
    is_plain,
    record_of,
    refused_by_spark,
    require_unique,
    views_of,
)
from backfill_cli.lake.merge import changes as staged_changes
from backfill_cli.lake.merge import inserts as staged_inserts
from backfill_cli.lake.state import Claim, JobState
from backfill_cli.model.checkpoint import Marker
from backfill_cli.model.committing import Committing
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged, StagedFile, StagedTable
from backfill_cli.model.schema import Columns, columns_of, names_of
from backfill_cli.spark.api import DataFrame, F
from backfill_cli.spark.names import backticked, quoted

if TYPE_CHECKING:
    from backfill_cli.derived.rows import Maintained
    from backfill_cli.lake.sink import LakeSink

Versions = Mapping[str, tuple[int | None, str]]
"""By table, its version, and what identifies that."""


@dataclass(frozen=True, slots=True)
class Now:
    """A table of the sink as it is: at which claim, version and marker."""

    table: SinkTable
    claim: Claim
    version: int | None
    marker: Marker


class Keeping:
    """What one commit does for derived tables, once the job's own tables are at its epoch."""

    def __init__(self, lake: "LakeSink", derives: LakeDerives, commit: EpochCommit, state: JobState) -> None:
        self.lake, self.derives, self.commit, self.state = lake, derives, commit, state
        self.spark = derives.spark
        self.tables = (*commit.tables, *commit.aside)
        self.views = {base.name: base.sql for base in bases(self.tables)} | dict(views_of(commit.derived))
        self.claims = lake.claims(commit.job)
        self.now: dict[str, Now] = {}
        self._frames: dict[tuple[str, int | None], DataFrame] = {}
        self.changed: dict[str, str | None] = {}  # by table, its changed keys as a relation: see `derived.reach`
        self.kept = frozenset(one.name for one in commit.derived)
        self.others: dict[str, frozenset[str]] = {}  # see `LakeSink.moved`, of what the derived table reads
        self.took = Took()
        self.anew: set[str] = set()  # tables of which all rows are other ones
        self.held: set[str] = set()  # derived tables that a later commit fills

    def keep(self) -> None:
        """Raises BadData for one whose rows cannot be computed, once the others are kept that do not read it."""
        from backfill_cli.derived.refused import or_leaves

        found = [(one, self._current(one.derived.name, table)) for one, table in self._described()]
        begun = any(now.marker.begun or self.lake.was_filled(self.commit.job, now.claim) for _, now in found)
        if not begun and self.commit.saved.checkpoint.phase is Phase.SNAPSHOT:
            return
        if all(self._has(now) for _, now in found):
            return
        for table in self.tables:
            self.now[table.name] = self._base(table)
        self._note_changes()
        failed = dict[str, BadData]()
        needed = _needed(found)
        for at, (one, now) in enumerate(found):
            self.now[one.derived.name] = now
            if all(self._has(later) for _, later in found[at:]):
                break
            if not (now.marker.epoch or one.derived.name in needed) and self._holds(one):
                self.held.add(one.derived.name)
                continue
            self._tell_where(at, found)
            if not failed.keys() & set(one.reads):
                try:
                    with self.took.of(one.derived.name):
                        self._keep(one, now)
                except BadData as exc:
                    # The tables have the epoch: what corrects these rows can follow, and then it is filled.
                    self.lake.claim_anew(self.commit.job, one.derived.name)
                    failed[one.derived.name] = exc
            else:
                failed[one.derived.name] = failed[next(name for name in one.reads if name in failed)]
        for refusal in failed.values():
            raise or_leaves(self.commit.job, refusal)

    def _holds(self, one: "Maintained") -> bool:
        """Whether it is filled by a later commit; its marker stays at 0."""
        return not self.held.isdisjoint(one.reads) or self.commit.fill_rows == 0 or self.commit.holds()

    def _tell_where(self, at: int, found: "Sequence[tuple[Maintained, Now]]") -> None:
        """That the derived table at this place is being kept or filled."""
        has = [*(table.name for table in self.commit.tables)]
        lacks = [found[at][0].derived.name]
        filled = 0
        for other, (one, before) in enumerate(found):
            name = one.derived.name
            now = self.now.get(name, before) if other < at else before
            filled += now.marker.epoch > 0
            if other != at and name not in self.held:
                (has if self._has(now) else lacks).append(name)
        filling = (filled + 1, len(found)) if not found[at][1].marker.epoch else None
        self.commit.tell(Committing(self.commit.epoch, tuple(has), tuple(lacks), filling))

    def _described(self) -> "Sequence[tuple[Maintained, SinkTable]]":
        return self.derives.described_as_before(self.commit.derived, self.tables)

    def _has(self, now: Now) -> bool:
        return (now.marker.epoch, now.marker.attempt) == (self.commit.epoch, self.commit.attempt)

    def _current(self, name: str, table: SinkTable) -> Now:
        claim = self.claims.get(name)
        found = None if claim is None else self.lake.now(self.commit.job, name, claim)
        if claim is None or (found is None and not claim.derived):
            raise marker_gone(self.commit, name, self.lake.holder)
        if claim.derived and (found is None or not found[1].epoch):
            found = (None if found is None else found[0]), self.lake.unfilled(claim)
        assert found is not None
        return Now(table, claim, *found)

    def _base(self, table: SinkTable) -> Now:
        """A table that is set aside has no claim; it stays as it is."""
        if table.name in self.claims:
            now = self._current(table.name, table)
            if table not in self.commit.aside and not self._has(now):
                refuse_old_token(self.commit.job, table.name, self.commit.token, now.marker)
                raise Transient(f"table {table.name!r}: its commit {self.commit.epoch} is gone again", RETRIED)
            return now
        claim = self.lake.claim_at(table)
        found = self.lake.now(self.commit.job, table.name, claim)
        return Now(table, claim, *(found or (None, Marker(0, 0, ""))))

    def _note_changes(self) -> None:
        for at, table in enumerate(self.commit.tables):
            staged = self.commit.staged.tables.get(table.name)
            if staged is None or table.side:
                continue
            if staged.truncated:
                self.anew.add(table.name)
            elif staged.rows + staged.changed + staged.deleted:
                rows = (staged_inserts, staged_changes)
                frames = [found for one in rows if (found := one(self.spark, self.commit, table)) is not None]
                keys = [frame.select(*map(F.col, map(backticked, table.key))) for frame in frames]
                name = own.numbered(own.CHANGED, at)
                _union(keys).createOrReplaceTempView(name)  # a key can stand twice: it is looked up only
                self.changed[table.name] = name

    def _keep(self, one: "Maintained", now: Now) -> None:
        """Raises BadData for rows that cannot be computed, or that share a key."""
        from backfill_cli.derived.refused import uncomputed

        name = one.derived.name
        record = Record(self.state, now.claim, one.reads)
        before = None if self.anew & set(one.reads) else self._before(now, record)
        try:
            if before is None:
                self._fill(one, now, record)
            else:
                self._upkeep(one, now, record, before)
        except Exception as exc:
            if isinstance(exc, BackfillError):
                raise
            if before is not None and self._is_lost(before):
                self._fill(one, now, record)
                return
            if (said := refused_by_spark(exc)) is None:
                raise
            raise uncomputed(name, said) from exc

    def _is_lost(self, versions: Versions) -> bool:
        """Whether a version can no longer be read: VACUUM, or an expiry of snapshots, removed its files."""
        return any(
            self._moved(name, at, identity) is None or self.lake.fault(self.now[name].claim, at) is not None
            for name, (at, identity) in versions.items()
        )

    # The states before and after

    def _before(self, now: Now, record: "Record") -> Versions | None:
        """The versions at which the derived table was exact before this epoch; None if they cannot be read."""
        if not now.marker.epoch:
            return None
        if self._has(now):
            versions = record.of_epoch(self.commit.prev_epoch)
        else:
            versions = record.of(now.marker) if now.marker.epoch == self.commit.prev_epoch else None
        if versions is None:
            return None
        self.others = {}
        for name in record.reads:
            moved = self._moved(name, *versions[name])
            if moved is None or (moved and name in self.kept):
                return None
            self.others[name] = moved
        return versions

    def _moved(self, name: str, version: int | None, identity: str) -> frozenset[str] | None:
        """See `LakeSink.moved`, since this version; None also if it is not what it was."""
        now = self.now[name]
        try:
            if str(self.lake.identity(now.claim, version)) != identity:
                return None
            if version == now.version:
                return frozenset()
            return self.lake.moved(self.commit.job, now.claim, version, now.version)
        except BackfillError:
            return None

    def _version(self, now: Now) -> tuple[int | None, str]:
        return now.version, str(self.lake.identity(now.claim, now.version))

    def _rows(self, name: str, version: int | None) -> DataFrame:
        """A version is opened once: to open one costs Spark jobs of its own."""
        if (name, version) not in self._frames:
            now = self.now[name]
            self._frames[name, version] = self.lake.rows_of_commit(self.spark, now.table, now.claim, version)
        return self._frames[name, version]

    def _show(self, reads: Sequence[str], versions: Mapping[str, int | None]) -> None:
        for name in reads:
            self._rows(name, versions[name]).createOrReplaceTempView(self.views[name])

    def _after(self, one: "Maintained") -> Mapping[str, int | None]:
        return {name: self.now[name].version for name in one.reads}

    # A derived table

    def _fill(self, one: "Maintained", now: Now, record: "Record") -> None:
        self.anew.add(one.derived.name)
        if self._has(now):
            return
        self._show(one.reads, self._after(one))
        same = self.derives.require_ours(self.commit.job, now.table, now.claim)
        files = self._written(self._select(one.text, now.table), "inserts")
        require_unique(one, now.table, self._read(files, now.table))
        if now.version is None:
            self.lake.prepare(self.commit.job, [now.table], into_existing=True)
            self.lake.begin(self.commit.job, one.derived.name, now.claim)
            now = self._current(one.derived.name, now.table)
        held = not same or self.lake.has_rows(now.table)
        staged = StagedTable(inserts=files.files, rows=files.rows, truncated=held)
        self._put(one, now, record, staged, files.folder)

    def _upkeep(self, one: "Maintained", now: Now, record: "Record", before: Versions) -> None:
        changes = {name: self.changed[name] for name in one.reads if name in self.changed}
        changes |= self._of_others(one, changes, before)
        keys = self._keys(one, changes, before)
        if keys is not None:
            self._tell(one, keys)
        if self._has(now):
            return
        if keys is None:
            self._put(one, now, record, StagedTable(), self.commit.folder)
            return
        table, key = now.table, own.numbered(own.KEYS, 0)
        self._show(one.reads, self._after(one))
        new = self._select(one.limited(key, None, self._types(one)), table)
        self._rows(one.derived.name, now.version).createOrReplaceTempView(own.HELD)
        old = self.spark.sql(f"SELECT * FROM {own.HELD} AS {own.ROW} WHERE {one.among(key, own.ROW)}")
        net = self._written(self._net(table, table.key if one.pushed else (), new, old), "changes")
        if net.most > 1:
            require_unique(one, table, new)
        updated = net.rows - net.deletes
        if not net.rows:
            staged = StagedTable()
        elif one.pushed:
            staged = StagedTable(changes=net.files, changed=updated, deleted=net.deletes)
        else:  # its one row, or none
            staged = StagedTable(inserts=net.files if updated else (), rows=updated, truncated=True)
        self._put(one, now, record, staged, net.folder)

    def _of_others(
        self, one: "Maintained", changes: Mapping[str, str | None], before: Versions
    ) -> Mapping[str, str | None]:
        """The changed keys of tables in which somebody else changed rows, too: those of rows that differ."""
        found = dict[str, str | None]()
        for at, name in enumerate(one.reads):
            if moved := self.others.get(name):
                keys = self._differing(self.now[name], before[name][0], moved)
                if ours := changes.get(name):
                    keys = keys.unionAll(self.spark.table(ours))
                written = self._written_keys(keys, "others")
                view = own.numbered(own.CHANGED, len(self.views) * (at + 2))
                self._keys_in(written).createOrReplaceTempView(view)
                found[name] = view
        return found

    def _differing(self, now: Now, before: int | None, files: frozenset[str]) -> DataFrame:
        """The keys of a table's rows that only one of two versions has; of all in these files, if Spark cannot
        compare its types."""
        old, new = (
            self.lake.rows(self.spark, now.table, now.claim, version, files) for version in (before, now.version)
        )
        if all(map(is_plain, columns_of(now.table.schema).values())):
            old, new = old.exceptAll(new), new.exceptAll(old)
        return old.unionAll(new).select(*map(quoted, now.table.key))

    def _keys(self, one: "Maintained", changes: Mapping[str, str | None], before: Versions) -> "Written | None":
        """The keys that the changes reach, before and after, as a view; None if there are none."""
        if not changes:
            return None
        groups = self.derives.groups_of(one)
        for view, selects in zip(groups.relations, one.reached_in(changes, groups), strict=True):
            if selects:
                reached = self._in_both(one, selects, before)
                self._keys_in(self._written_keys(reached, "groups")).createOrReplaceTempView(view)
        selects = one.reached(changes, self._types(one), groups)
        if not selects:
            return None
        found = self._written_keys(self._in_both(one, selects, before).toDF(*one.key_columns), "keys")
        if not found.rows:
            return None
        self._keys_in(found).createOrReplaceTempView(own.numbered(own.KEYS, 0))
        return found

    def _in_both(self, one: "Maintained", selects: Sequence[str], before: Versions) -> DataFrame:
        """What these SELECTs find in the state before and in that after."""
        frames = []
        for versions in ({name: before[name][0] for name in one.reads}, self._after(one)):
            self._show(one.reads, versions)
            frames += [self.spark.sql(select) for select in selects]
        return _union(frames)

    def _written_keys(self, keys: DataFrame, what: str) -> "Written":
        """A key can stand twice, which costs less than another shuffle."""
        return replace(self._written(keys, what), columns=columns_of(keys.schema.json()))

    def _keys_in(self, keys: "Written") -> DataFrame:
        if not keys.files:
            return self.derives.empty(keys.columns)
        return reader(self.spark, keys.columns).parquet(*keys.paths)

    def _types(self, one: "Maintained") -> list[str]:
        return self.derives.types(one, self.views[one.derived.name])

    def _tell(self, one: "Maintained", keys: "Written") -> None:
        """Derived tables that read this one know which of its rows can be other ones."""
        if not one.pushed:
            self.changed[one.derived.name] = None
            return
        renamed = [F.col(column).alias(name) for name, column in zip(one.pushed, one.key_columns, strict=True)]
        view = own.numbered(own.CHANGED, len(self.tables) + list(self.views).index(one.derived.name))
        self._keys_in(keys).select(*renamed).createOrReplaceTempView(view)
        self.changed[one.derived.name] = view

    def _select(self, text: str, table: SinkTable) -> DataFrame:
        """The SELECT's rows with the table's own names and types."""
        return self.spark.sql(text).toDF(*names_of(table.schema))

    def _net(self, table: SinkTable, key: Sequence[str], new: DataFrame, old: DataFrame) -> DataFrame:
        """`(own.OP, own.COUNT, columns…)`: rows of `new` that `old` has not; keys of `old` that `new` has not.

        In one pass over both. own.COUNT: how many rows of `new` have this key; here is one of them.
        """
        names, keys = names_of(table.schema), {name: own.numbered(own.KEY, at) for at, name in enumerate(key)}
        both = _union(
            [
                rows.select(
                    F.lit(sign).alias(own.SIGN),
                    F.struct(*map(quoted, names)).alias(own.ROW),
                    *(quoted(name).alias(column) for name, column in keys.items()),
                )
                for rows, sign in ((new, 1), (old, -1))
            ]
        )
        is_new = F.col(own.SIGN) > 0
        found = both.groupBy(*keys.values()).agg(
            F.count(F.when(is_new, 1)).alias(own.COUNT),
            F.count(F.when(~is_new, 1)).alias(own.ROWS),
            F.max(F.when(is_new, F.col(own.ROW))).alias(own.ROW),
            F.max(F.when(~is_new, F.col(own.ROW))).alias(own.HELD),
        )
        changed = found.where(
            f"{own.COUNT} + {own.ROWS} > 0 AND NOT "
            f"({own.COUNT} = 1 AND {own.ROWS} = 1 AND {own.ROW} <=> {own.HELD})"
        )
        values = [keys.get(name, f"{own.ROW}.{backticked(name)}") for name in names]
        return changed.select(
            F.expr(f"CASE WHEN {own.COUNT} = 0 THEN 'D' ELSE 'U' END").alias(own.OP),
            own.COUNT,
            *(F.col(value).alias(name) for value, name in zip(values, names, strict=True)),
        )

    # Files

    def _written(self, rows: DataFrame, what: str) -> "Written":
        """The rows are in files below the attempt's folder, which goes with it."""
        folder = f"{self.commit.folder.rstrip('/')}/derived/{uuid.uuid4().hex[:12]}"
        rows.write.parquet(f"{folder}/{what}")
        at = place(f"{folder}/{what}", "")
        files, count, deletes, most = [], 0, 0, 0
        for info in sorted(at.fs.get_file_info(FileSelector(at.folder)), key=lambda info: str(info.path)):
            if info.base_name.endswith(".parquet") and not info.base_name.startswith(("_", ".")):
                with at.fs.open_input_file(info.path) as opened:
                    file = pq.ParquetFile(opened)
                    rows_in = file.metadata.num_rows
                    if own.OP in file.schema_arrow.names:  # two columns, which need no Spark job
                        for batch in file.iter_batches(columns=[own.OP, own.COUNT]):
                            deletes += pc.sum(pc.equal(batch.column(own.OP), "D")).as_py() or 0
                            most = max(most, pc.max(batch.column(own.COUNT)).as_py() or 0)
                if rows_in:
                    files.append(StagedFile(f"{what}/{info.base_name}", info.size))
                    count += rows_in
        return Written(folder, tuple(files), count, deletes, most)

    def _read(self, written: "Written", table: SinkTable) -> DataFrame:
        columns = columns_of(table.schema)
        if not written.files:
            return self.derives.empty(columns)
        return reader(self.spark, columns).parquet(*written.paths)

    def _put(self, one: "Maintained", now: Now, record: "Record", staged: StagedTable, folder: str) -> None:
        """The derived table has these rows, and its marker the epoch; the record says of which versions."""
        name = one.derived.name
        record.save(self.commit, {read: self._version(self.now[read]) for read in one.reads})
        commit = replace(
            self.commit,
            tables=(now.table,),
            folder=folder,
            staged=Staged(self.commit.attempt, {name: staged}),
            prev_epoch=now.marker.epoch,
            unique=(),
            only=None,
            converging=False,
            filling=frozenset(),
            derived=(),
            aside=(),
        )
        hit("derived-before-commit")
        self.lake.commit_table(commit, now.table, now.claim)
        hit("derived-after-commit")
        found = self.lake.now(self.commit.job, name, now.claim)
        if found is None:
            raise marker_gone(self.commit, name, self.lake.holder)
        self.now[name] = Now(now.table, now.claim, *found)
        record.forget_before(self.commit.prev_epoch)


def _needed(found: "Sequence[tuple[Maintained, Now]]") -> set[str]:
    """What filled derived tables read, and what these read. It cannot wait: those are to equal their SELECTs."""
    needed = set[str]()
    for one, now in reversed(found):
        if now.marker.epoch or one.derived.name in needed:
            needed.update(one.reads)
    return needed


@dataclass(frozen=True, slots=True)
class Written:
    """folder: of the files, whose paths are relative to it. deletes: how many of the rows are some, by own.OP.

    most: how many rows have one key at most, by own.COUNT. columns: of the rows, where they are asked for.
    """

    folder: str
    files: tuple[StagedFile, ...]
    rows: int
    deletes: int = 0
    most: int = 0
    columns: Columns = field(default_factory=dict)

    @property
    def paths(self) -> list[str]:
        return [f"{self.folder}/{one.path}" for one in self.files]


class Record:
    """At which versions of the tables that it reads a derived table is exact: a file for each epoch and attempt.

    It is written before the derived table's commit, and counts once the marker names its epoch and attempt.
    """

    def __init__(self, state: JobState, claim: Claim, reads: Sequence[str]) -> None:
        self._files = record_of(state, claim)
        self.reads = reads

    def of(self, marker: Marker) -> Versions | None:
        return self._loaded(_name(marker.epoch, marker.attempt))

    def of_epoch(self, epoch: int) -> Versions | None:
        """None also if several attempts of the epoch were about to be committed."""
        found = [name for name in self._files.names() if int(name.split("-")[0]) == epoch]
        return self._loaded(found[0]) if len(found) == 1 else None

    def _loaded(self, name: str) -> Versions | None:
        try:
            told = json.loads(self._files.read(name))
            return {read: (told[read][0], str(told[read][1])) for read in self.reads}
        except (FileNotFoundError, ValueError, KeyError, TypeError, IndexError):
            return None  # it is filled

    def save(self, commit: EpochCommit, versions: Versions) -> None:
        name = _name(commit.epoch, commit.attempt)
        try:
            self._files.create(name, json.dumps(versions).encode())
        except FileExistsError:
            return  # of the same rows: the tables were at this epoch

    def forget_before(self, epoch: int) -> None:
        for name in self._files.names():
            if int(name.split("-")[0]) < epoch:
                self._files.delete(name)


def _name(epoch: int, attempt: str) -> str:
    return f"{epoch:016d}-{attempt}.json"


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    made = frames[0]
    for one in frames[1:]:
        made = made.unionAll(one)
    return made
