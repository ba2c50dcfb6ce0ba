"""A commit to one Iceberg table: written to the runner's branch, to which the table's own branch is then moved.

`fast_forward` fails if the table's branch has moved since the runner's branch was created from it. So what a
commit found there when it began, including the marker, still holds when its rows become visible.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from urllib.parse import quote_plus

from pyiceberg.partitioning import PartitionField
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import BinaryType, FixedType, StringType

from backfill_cli.contracts import EpochCommit, SinkTable
from backfill_cli.errors import RETRIED, BackfillError
from backfill_cli.failpoint import hit
from backfill_cli.formats.listing import local_path
from backfill_cli.lake import merge
from backfill_cli.lake.iceberg.edge import Moved, failing, reading_metadata
from backfill_cli.lake.iceberg.metadata import Held, Look, snapshot_fault, summary_of
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.sinks.iceberg.markers import PART, PREFIX, Head, branch, tag
from backfill_cli.spark.api import Column, DataFrame, F, SparkSession
from backfill_cli.spark.names import backticked, quoted

_DATA = ("write.data.path", "write.folder-storage.path")
PROPERTY = "spark.sql.iceberg.snapshot-property."

_TOO_LONG = "what is too long for a folder's name"

Step = Callable[[], None]


class Writer:
    """Writes to one table. spark: the sink's own session, where settings of a commit affect nothing else.

    told: the marker. properties: those that the config gives to new tables, for errors.
    """

    def __init__(
        self,
        spark: SparkSession,
        place: Place,
        look: Look,
        told: Mapping[str, str],
        token: int,
        properties: Mapping[str, str],
    ) -> None:
        self._spark, self._place, self._look, self._told, self._token = spark, place, look, told, token
        self._properties = properties

    def mark(self, held: Head) -> None:
        """The marker is in the table, and no row has changed; a new branch of the job is empty. Raises Moved."""
        if held.main is None:
            with failing(self._place, self._properties):
                if held.is_live:
                    self._append_nothing(self._place.sql)
                    return
                # A branch needs a snapshot to start from; this one has no marker.
                self._nothing(self._place.sql)
            raise Moved(f"table {self._place}: it had no snapshot", RETRIED)
        self._on_branch(held, [] if held.begun else [lambda: self._sql(f"DELETE FROM {self._branch}")])

    def apply(self, held: Head, commit: EpochCommit, table: SinkTable) -> None:
        """The epoch's rows are in the table, with the marker. Raises Moved; BadData before anything is visible."""
        rows = (merge.inserts(self._spark, commit, table), merge.changes(self._spark, commit, table))
        tests = _unrepresentable(held)
        for one in rows:
            if one is not None:
                merge.refuse_partitions(one, table, f"table {self._place}", tests, _TOO_LONG)
        self._on_branch(held, list(self._steps(commit, table, *rows)), commit, table)

    def _on_branch(
        self,
        held: Head,
        steps: Sequence[Step],
        commit: EpochCommit | None = None,
        table: SinkTable | None = None,
    ) -> None:
        assert held.main is not None
        name, before = branch(self._token), held.main.snapshot_id
        with failing(self._place, self._properties, partial(self._fault, held, held.main)):
            if held.refs.get(name) != before:
                self._sql(f"ALTER TABLE {self._place.sql} CREATE OR REPLACE BRANCH {name} AS OF VERSION {before}")
            with self._telling({PART: self._told[f"{PREFIX}job"]}):
                for step in steps[:-1]:
                    step()
            # The last write has the marker, so that a rollback into the middle of an epoch finds no marker.
            with self._marked():
                for step in steps[-1:]:
                    step()
            newest = self._newest(name)
            if not self._is_marked(newest):
                self._append_nothing(self._branch)
                newest = self._newest(name)
            if commit is not None and table is not None and table.name in commit.unique:
                merge.refuse_duplicates(table, self._spark.table(self._branch))
            if commit is not None:
                hit("sink-before-commit")
            self._forward(held.target, name)
            if commit is not None:
                hit("sink-before-close")
            # Tag the snapshot with the marker: the newest one can be another writer's by now.
            now = f"{tag(self._token)} AS OF VERSION {newest.snapshot_id}"
            self._sql(f"ALTER TABLE {self._place.sql} CREATE OR REPLACE TAG {now}")

    def _fault(self, held: Head, main: Snapshot) -> BackfillError | None:
        """What is wrong with the files that the commit had to read."""
        with reading_metadata(self._place):
            return snapshot_fault(held, main)

    def _forward(self, target: str, name: str) -> None:
        """The branch `target` is at the runner's branch. If it moved, raises Moved and drops the runner's branch.

        Otherwise, once the snapshots between them have expired, it would be unknown whether the runner's branch
        had been committed.
        """
        try:
            with failing(self._place):
                self._sql(self._place.procedure("fast_forward", f"branch => '{target}', to => '{name}'"))
        except Moved:
            self._sql(f"ALTER TABLE {self._place.sql} DROP BRANCH IF EXISTS {name}")
            raise

    def _steps(
        self, commit: EpochCommit, table: SinkTable, inserts: DataFrame | None, changes: DataFrame | None
    ) -> Iterator[Step]:
        if merge.staged_of(commit, table).truncated:
            yield lambda: self._sql(f"DELETE FROM {self._branch}")
        if inserts is not None:
            if not table.plain_inserts:
                yield lambda: self._delete(inserts, table)
            yield lambda: self._append(inserts)
        if changes is not None:
            yield lambda: self._merge(changes, commit, table)

    @property
    def _branch(self) -> str:
        return f"{self._place.sql}.{backticked(f'branch_{branch(self._token)}')}"

    def _append(self, rows: DataFrame) -> None:
        rows.writeTo(self._branch).append()

    def _append_nothing(self, target: str) -> None:
        with self._marked():
            self._nothing(target)

    def _nothing(self, target: str) -> None:
        self._spark.table(target).where("false").writeTo(target).append()

    def _delete(self, rows: DataFrame, table: SinkTable) -> None:
        """The rows with these keys are deleted."""
        keys = rows.select(*(quoted(name) for name in table.key)).distinct()
        matches = " AND ".join(f"t.{backticked(name)} = s.{backticked(name)}" for name in table.key)
        with merge.viewed(self._spark, keys) as source:
            self._sql(f"MERGE INTO {self._branch} AS t USING {source} AS s ON {matches} WHEN MATCHED THEN DELETE")

    def _merge(self, rows: DataFrame, commit: EpochCommit, table: SinkTable) -> None:
        files, held = merge.staged_of(commit, table).changes, partial(self._spark.table, self._branch)
        merge.merge_into(self._branch, rows, files, commit, table, held, lambda _: self._rows(), nullcontext())

    def _marked(self) -> AbstractContextManager[None]:
        """Commits in the block have the marker in their snapshot's properties."""
        return self._telling(self._told)

    @contextmanager
    def _telling(self, properties: Mapping[str, str]) -> Iterator[None]:
        for name, value in properties.items():
            self._spark.conf.set(PROPERTY + name, value)
        try:
            yield
        finally:
            for name in properties:
                self._spark.conf.unset(PROPERTY + name)

    def _rows(self) -> int | None:
        """How many rows the runner's branch has, as its newest snapshot tells."""
        told = summary_of(self._newest(branch(self._token))).get("total-records")
        return None if told is None else int(told)

    def _newest(self, name: str) -> Snapshot:
        """The newest snapshot of the runner's branch. Raises Moved if a newer runner dropped the branch."""
        held = self._look.now()
        found = None if held is None or name not in held.refs else held.snapshot(held.refs[name])
        if found is None:
            raise Moved(f"table {self._place}: branch {name} is gone", RETRIED)
        return found

    def _is_marked(self, snapshot: Snapshot) -> bool:
        """Whether the snapshot has the marker; one by a DELETE of all rows does not, as it ignores the setting."""
        return summary_of(snapshot).items() >= self._told.items()

    def _sql(self, text: str) -> None:
        self._spark.sql(text)


def _unrepresentable(held: Held) -> Mapping[str, Column]:
    """By column, under which condition no folder can have its partition's name, see `refuse_partitions`."""
    folders = next((held.told.properties[name] for name in _DATA if name in held.told.properties), "")
    if "://" in local_path(folders or held.told.location):
        return {}
    fields = {held.told.schema().find_column_name(one.source_id): one for one in held.told.spec().fields}
    found = {name: _too_long(held, name, one) for name, one in fields.items() if name}
    return {name: test for name, test in found.items() if test is not None}


def _too_long(held: Held, name: str, part: PartitionField) -> Column | None:
    """Under which condition the name is too long; None if values are not texts, or always short enough."""
    value = F.col(".".join(map(backticked, name.split("."))))
    kind = held.told.schema().find_type(part.source_id)
    if not isinstance(kind, StringType | BinaryType | FixedType):
        return None
    match part.transform:
        case IdentityTransform():
            pass
        case TruncateTransform() as cut:
            value = F.substring(value, 1, cut.width)
        case _:
            return None
    text = value if isinstance(kind, StringType) else F.base64(value)
    room = merge.LONGEST_NAME - len(f"{quote_plus(part.name)}=")
    return F.coalesce(F.octet_length(F.url_encode(text)) > room, F.lit(False))
