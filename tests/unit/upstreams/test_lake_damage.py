"""A file of a lake's table that is cut off, removed or overwritten anywhere is told by its name, with the way on.

Whether a table can still be read is what deltalake and pyiceberg say.
"""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hint_typed import typed
from hypothesis import given, settings
from hypothesis import strategies as st
from oracle.lake_writers import Folder
from py4j.protocol import Py4JError
from pyiceberg.expressions import LessThan
from pyiceberg.table import StaticTable

from backfill_cli.contracts import SinkTable, TableSpec
from backfill_cli.errors import BackfillError, Fatal, HistoryGone, UsageError
from backfill_cli.lake.delta.commits import faulty
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.delta.plain import version_files
from backfill_cli.lake.iceberg.edge import failing
from backfill_cli.lake.iceberg.metadata import Look, snapshot_fault
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.lake.sink import LakeCopy
from backfill_cli.model.plan import SnapshotRead
from backfill_cli.model.upstream import Pin
from backfill_cli.sinks.delta.apply import delta_writing
from backfill_cli.upstreams.delta import connector as delta
from backfill_cli.upstreams.iceberg import connector as iceberg

ROWS, APPENDS = 500, 3
FEED = {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "1000"}
HINTS = ("version-hint.text", "_last_checkpoint")
"""Files that only say where to look first: what they say is found without them."""


def rows(first: int) -> pa.Table:
    text = random.Random(first)
    ids = range(first * ROWS, first * ROWS + ROWS)
    return pa.table({"id": pa.array(ids, pa.int64()), "v": [text.randbytes(9).hex() for _ in ids]})


class Lake:
    """A table that a job has pinned, and to which others wrote since. whole: its files as they are to be."""

    def __init__(self, form: str, path: Path) -> None:
        self.form, self.path = form, path
        later = getattr(self, form)()
        self.pin = self.opened().pin()
        later()
        self.newest = self.opened().pin()
        self.whole = {file: file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}

    def delta(self) -> Callable[[], None]:
        for number in range(APPENDS):
            write_deltalake(str(self.path), rows(number), mode="append", configuration=FEED)
        DeltaTable(str(self.path)).create_checkpoint()

        def later() -> None:
            DeltaTable(str(self.path)).delete("id < 7")
            write_deltalake(str(self.path), rows(9), mode="append")

        return later

    def iceberg(self) -> Callable[[], None]:
        table = Folder(self.path).created(rows(0).schema)
        for number in range(APPENDS):
            table.append(rows(number))

        def later() -> None:
            table.delete(LessThan("id", 7))
            table.append(rows(9))

        return later

    def opened(self) -> Any:
        connector = {"delta": delta, "iceberg": iceberg}[self.form]
        options = connector.options.model_validate({"type": self.form, "table": str(self.path)})
        return connector.open(options, [TableSpec("t", ("id",))])

    def resumed(self) -> Any:
        upstream = self.opened()
        upstream.restore(self.pin)
        return upstream

    def observe(self) -> None:
        self.resumed().observe(self.pin.position, True)
        later = self.opened()
        later.restore(self.newest)
        later.observe(self.newest.position, True)

    def read(self) -> None:
        """All rows of the pinned snapshot, by our own readers; what they do not read is left to Spark."""
        reads = [SnapshotRead(one.table, one.id) for one in self.pin.splits]
        if (tasks := self.resumed().batches("t", reads, 2)) is not None:
            count = sum(batch.num_rows for part in tasks.parts for one in part for batch in tasks.make(one.what))
            assert count == ROWS * APPENDS

    def explain(self) -> None:
        """What is said once Spark has failed, whose words tell nothing."""
        upstream = self.resumed()
        upstream.observe(self.pin.position, True)
        if self.form == "iceberg":
            upstream.tables["t"].asked_for(*map(self.snapshot_of, (self.pin, self.newest)))
        fault = upstream.failure(RuntimeError("Index 24206 out of bounds for length 20000"))
        if fault is not None:
            raise fault

    def snapshot_of(self, pin: Pin) -> int:
        return int(str(pin.position.get("t")).partition(":")[2])

    def errors(self) -> list[BackfillError]:
        found = []
        for act in (lambda: self.opened().pin(), self.observe, self.read, self.explain):
            try:
                act()
            except BackfillError as error:
                found.append(error)
        return found

    def is_readable(self) -> bool:
        """By the format's own library, in Python."""
        try:
            if self.form == "delta":
                begun = DeltaTable(str(self.path), APPENDS - 1).to_pyarrow_table().num_rows
                feed = pa.table(DeltaTable(str(self.path)).load_cdf(APPENDS, APPENDS + 1)).num_rows
                counts = [begun, begun + feed - 14]
            else:
                table = StaticTable.from_metadata(str(self.path))
                numbers = map(self.snapshot_of, (self.pin, self.newest))
                counts = [table.scan(snapshot_id=one).to_arrow().num_rows for one in numbers]
        except BaseException:  # of Rust, too
            return False
        return counts == [ROWS * APPENDS, ROWS * (APPENDS + 1) - 7]


@pytest.fixture(scope="module", params=["delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    return Lake(request.param, tmp_path_factory.mktemp("lake") / "t")


Damage = tuple[str, Callable[[bytes], bytes | None]]


@st.composite
def damages(draw: st.DrawFn) -> Damage:
    share = draw(st.floats(0, 1))
    kind = draw(st.sampled_from(["removed", "cut off", "overwritten"]))
    match kind:
        case "removed":
            return kind, lambda _: None
        case "cut off":
            return kind, lambda whole: whole[: min(int(share * len(whole)), len(whole) - 1)]
    length = draw(st.integers(1, 200))

    def overwritten(whole: bytes) -> bytes:
        at = int(share * len(whole))
        return whole[:at] + bytes(255 - byte for byte in whole[at : at + length]) + whole[at + length :]

    return kind, overwritten


@settings(max_examples=40)
@given(data=st.data(), damage=damages())
def test_a_damaged_file_ends_in_an_error_that_names_it_or_in_the_rows_that_are_there(
    lake: Lake, data: st.DataObject, damage: Damage
) -> None:
    file, (kind, do) = data.draw(st.sampled_from(list(lake.whole))), damage
    changed = do(lake.whole[file])
    if changed is None:
        file.unlink()
    else:
        file.write_bytes(changed)
    try:
        errors, readable = lake.errors(), lake.is_readable()
    finally:
        file.write_bytes(lake.whole[file])
    for error in errors:
        assert isinstance(error, Fatal | HistoryGone | UsageError), error
        assert file.name in error.message.replace("checkpoint.*", "checkpoint.parquet"), error.message
        assert error.hint
    untold = kind == "overwritten" or (changed and b"\n" in lake.whole[file][len(changed) - 1 : len(changed) + 1])
    assert errors or readable or file.name in HINTS or untold, "no checksum tells it"
    assert not (errors and file.name in HINTS), errors


def test_a_file_that_is_restored_lets_the_table_be_read(lake: Lake) -> None:
    """Of each kind of file one that is needed."""
    restored = set()
    for file in reversed(lake.whole):
        file.write_bytes(lake.whole[file][: len(lake.whole[file]) // 2])
        errors = [] if file.suffix in restored else lake.errors()
        file.write_bytes(lake.whole[file])
        for error in errors[:1]:
            with typed(error) as hint:
                hint.says("restore ")
                assert not lake.errors()
            restored.add(file.suffix)
    assert restored == {".json", ".parquet"} | ({".avro"} if lake.form == "iceberg" else set())


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
def test_a_manifest_that_is_cut_off_where_a_block_ends_is_not_taken_for_an_empty_one(lake: Lake) -> None:
    needed = 0
    for file in (one for one in lake.whole if one.suffix == ".avro"):
        whole = lake.whole[file]
        header = whole.index(whole[-16:]) + 16  # it ends with what each block ends with
        assert header < len(whole)
        file.write_bytes(whole[:header])
        errors = lake.errors()
        file.write_bytes(whole)
        assert all(f"{file.name} is damaged: it lists" in error.message for error in errors)
        needed += bool(errors)
    assert needed >= 2 * APPENDS


def test_a_sinks_table_that_lacks_a_file_is_told_by_that_file(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "t"), rows(0))
    table, (file,) = SinkTable("t", "t", ("id",), "{}"), (tmp_path / "t").glob("*.parquet")

    def commit() -> None:
        with delta_writing(table, Where.of(str(tmp_path / "t"), "t")):
            raise RuntimeError("Index 24206 out of bounds for length 20000")

    with pytest.raises(RuntimeError):
        commit()
    whole = file.read_bytes()
    file.write_bytes(whole[:-9])
    with pytest.raises(Fatal, match=f"{file.name} is damaged: it has"):
        commit()
    file.unlink()
    with pytest.raises(Fatal, match=f"{file.name} is missing") as gone:
        commit()
    with typed(gone.value) as hint:
        hint.says("restore that file from a copy of the table")
        file.write_bytes(whole)
        with pytest.raises(RuntimeError):
            commit()


@pytest.mark.parametrize("form", ["delta", "iceberg"])
def test_verify_tells_which_file_of_the_sink_it_could_not_read(tmp_path: Path, form: str) -> None:
    def fault(_: str) -> BackfillError | None:
        if form == "delta":
            where = Where.of(str(tmp_path / "t"), "t")
            return faulty(where, partial(version_files, where))
        held = Look(Place.of(str(tmp_path / "t")), dict).now()
        assert held is not None
        assert held.main is not None
        return snapshot_fault(held, held.main)

    def read(*_: object) -> Any:
        raise RuntimeError("Index 24206 out of bounds for length 20000")

    if form == "delta":
        write_deltalake(str(tmp_path / "t"), rows(0))
    else:
        Folder(tmp_path / "t").created(rows(0).schema).append(rows(0))
    copy: Any = LakeCopy(None, read, None, {}, fault)  # type: ignore[arg-type]
    table = SinkTable("t", "t", ("id",), "{}")
    with pytest.raises(RuntimeError):
        copy.digest(table, None, None)
    (file,) = (tmp_path / "t").rglob("*.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(Fatal, match=f"{file.name} is damaged"):
        copy.digest(table, None, None)
    place = Place.of(str(tmp_path / "t"))
    if form == "iceberg":  # the sink's own commits, too
        with pytest.raises(Fatal, match=f"{file.name} is damaged"), failing(place, fault=partial(fault, "t")):
            raise Py4JError("An error occurred while calling o1.sql: Index 24206 out of bounds")
