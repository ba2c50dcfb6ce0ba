"""An epoch column shared by all tables: which epochs are pending, and when the newest one is complete."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from files_builders import event, land, opened, parquet
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.contracts import TableSpec, own
from backfill_cli.errors import BadData, Fatal
from backfill_cli.formats.listing import File, Listing, place
from backfill_cli.model.position import START, Cursor, Position
from backfill_cli.model.schema import field
from backfill_cli.model.upstream import Incomplete
from backfill_cli.upstreams.delta import connector as delta
from backfill_cli.upstreams.files.changes import epoch_values
from backfill_cli.upstreams.files.options import CsvOptions
from backfill_cli.upstreams.files.reading import lines
from backfill_cli.upstreams.iceberg import connector as iceberg
from backfill_cli.upstreams.kafka.changes import KafkaChanges

BY_TX = {"epoch": "source.tx"}


def at(epoch: Cursor, file: str) -> Position:
    return Position.of({"epoch": epoch, "file of t": file})


def tables(root: Path, *names: str) -> Any:
    for name in names:
        parquet(root / "snapshot" / (name if len(names) > 1 else "") / "x.parquet")
    return opened(root, names, changes=BY_TX)


def epochs(upstream: Any, position: Position = START) -> list[tuple[Cursor, int | None]]:
    return [(e.cursors[0][1], e.rows) for e in upstream.observe(position, False).pending]


def test_every_distinct_epoch_is_pending_once_in_order(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "t")
    assert upstream.pin().position == Position()
    land(tmp_path / "changes", "1.json", event(1, tx=9), event(2, tx=9), event(1, tx=10))
    land(tmp_path / "changes", "2.json", "null", event(1, tx=11))
    assert epochs(upstream) == [(9, 2), (10, 1), (11, 1)]
    assert epochs(upstream, at(9, "1.json")) == [(10, 1), (11, 1)]
    assert epochs(upstream, at(11, "2.json")) == []


def test_the_newest_epoch_of_several_tables_waits_for_all_of_them_or_for_a_later_one(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "a", "b")
    upstream.pin()
    land(tmp_path / "changes" / "a", "1.json", event(1, ms=7, tx=1))
    assert epochs(upstream) == []
    land(tmp_path / "changes" / "b", "1.json", event(1, ms=5, tx=1), event(1, ms=5, tx=1))
    assert epochs(upstream) == [(1, 3)]
    land(tmp_path / "changes" / "b", "2.json", event(1, ms=9, tx=2))
    assert epochs(upstream) == [(1, 3)]
    land(tmp_path / "changes" / "a", "2.json", event(1, ms=9, tx=3))
    assert epochs(upstream) == [(1, 3), (2, 1)]


def test_a_newest_epoch_that_waits_is_named_with_the_tables_that_it_waits_for(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "a", "b", "c")
    upstream.pin()

    def incomplete() -> Incomplete | None:
        told: Incomplete | None = upstream.observe(START, False).incomplete
        return told

    assert incomplete() is None
    land(tmp_path / "changes" / "b", "1.json", event(1, ms=7, tx=1))
    assert incomplete() == Incomplete("source.tx", 1, ("a", "c"), 7)
    land(tmp_path / "changes" / "a", "1.json", event(1, ms=9, tx=1))
    assert incomplete() == Incomplete("source.tx", 1, ("c",), 9)
    land(tmp_path / "changes" / "c", "1.json", event(1, ms=9, tx=1))
    assert incomplete() is None
    land(tmp_path / "changes" / "c", "2.json", event(1, ms=9, tx=2))
    assert incomplete() == Incomplete("source.tx", 2, ("a", "b"), 9)
    assert epochs(upstream) == [(1, 3)]


def test_of_a_single_table_no_epoch_waits(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "t")
    upstream.pin()
    land(tmp_path / "changes", "1.json", event(1, ms=7, tx=1))
    assert upstream.observe(START, False).incomplete is None


def test_all_tables_share_one_log_and_capabilities_say_so(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "a", "b")
    assert upstream.capabilities.one_log
    assert not opened(tmp_path, ("a", "b")).capabilities.one_log


def test_only_changes_in_files_can_be_corrected_where_they_are(tmp_path: Path) -> None:
    assert opened(tmp_path, ("a",)).capabilities.correctable_log
    assert not KafkaChanges.correctable
    for lake in (delta, iceberg):
        upstream = lake.open(lake.options.model_validate({"table": "lake/t"}), [TableSpec("t", ("id",))])
        assert not upstream.capabilities.correctable_log


def test_a_mark_stands_at_the_last_epoch_up_to_that_file(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "x.parquet")
    land(tmp_path / "changes", "1.json", event(1, ms=5, tx=1))
    land(tmp_path / "changes", "2.json", event(1, ms=8, tx=4), event(1, ms=9, tx=5))
    pin = opened(tmp_path, changes=BY_TX, as_of="2.json").pin()
    assert (pin.position.get("epoch"), pin.position_ms, pin.complete_at) == (5, 9, None)


def test_a_carriage_return_between_tokens_does_not_end_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file that is larger than a block, a block ended at the last one, in the middle of a line."""
    monkeypatch.setattr(lines, "BLOCK_BYTES", 200)
    upstream = tables(tmp_path, "t")
    upstream.pin()
    spread = [event(n, tx=n // 7).replace(" ", "\r") for n in range(1, 50)]
    land(tmp_path / "changes", "1.json", *(f"{line}\r" for line in spread))
    assert epochs(upstream) == [(epoch, 6 if epoch == 0 else 7 if epoch < 7 else 1) for epoch in range(8)]


def test_an_epoch_in_two_files_is_named(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "t")
    upstream.pin()
    land(tmp_path / "changes", "1.json", event(1, tx=1), event(1, tx=2))
    land(tmp_path / "changes", "2.json", event(1, tx=2))
    with pytest.raises(BadData, match=r"2\.json begins at epoch 2"):
        epochs(upstream)


def test_case_46_a_file_below_the_position_came_late(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "t")
    upstream.pin()
    land(tmp_path / "changes", "2.json", event(1, tx=5))
    assert epochs(upstream) == [(5, 1)]
    land(tmp_path / "changes", "1.json", event(1, tx=4))
    with pytest.raises(Fatal, match=r"1\.json came late"):
        epochs(upstream, at(5, "2.json"))


def test_case_35_a_restored_upstream_goes_on_after_its_epoch(tmp_path: Path) -> None:
    first = tables(tmp_path, "t")
    pin = first.pin()
    for number in (1, 2, 3):
        land(tmp_path / "changes", f"{number}.json", event(1, tx=number))
    later = opened(tmp_path, changes=BY_TX)
    later.restore(pin)
    assert epochs(later, at(2, "2.json")) == [(3, 1)]


# Reading the values


def read(
    folder: Path, name: str, kind: Any, column: str, csv: CsvOptions | None = None
) -> list[tuple[Cursor, int]]:
    where = place(str(folder), "t")
    path = folder / name
    return list(
        epoch_values.read(
            where, File(name, str(path), path.stat().st_size, 0), kind, column, csv or CsvOptions()
        ).rows
    )


@given(st.lists(st.integers(-5, 5), min_size=1, max_size=30).map(sorted), st.integers(1, 7))
def test_parquet_epochs_are_right_whatever_the_row_groups(
    tmp_path_factory: pytest.TempPathFactory, values: list[int], group: int
) -> None:
    folder = tmp_path_factory.mktemp("epochs")
    pq.write_table(pa.table({"e": values}), folder / "f.parquet", row_group_size=group)
    assert read(folder, "f.parquet", "parquet", "e") == sorted({v: values.count(v) for v in values}.items())


def test_groups_of_one_epoch_are_known_from_the_footer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"e": ["a"] * 5 + ["b"] * 5}), tmp_path / "f.parquet", row_group_size=5)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("read rows")

    monkeypatch.setattr(pq, "read_table", never)
    assert read(tmp_path, "f.parquet", "parquet", "e") == [("a", 5), ("b", 5)]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ('{"s": {"e": 1, "x": [1]}, "y": "z"}\n{"s": {"e": 2}}', [(1, 1), (2, 1)]),
        ('{"s": {"e": "b"}}\n\nnull\n{"s": {"e": "a"}}\n', [("a", 1), ("b", 1)]),
        ('{"schema": {}, "payload": {"s": {"e": 3}}}\n', [(3, 1)]),
        ("", []),
        ("null\n\n", []),
        ('{"s": {"e": 1}}\n{"s": {"e": 2}, "x": "\\ud800"}\n{"s": {"e": 1}}', [(1, 2), (2, 1)]),
        ('{"s": {"e": "a"}, "s": {"e": "b"}}\n{"s": {"e": "a"}}', [("a", 1), ("b", 1)]),
    ],
)
def test_json_epochs_are_read_below_their_path(
    tmp_path: Path, content: str, found: list[tuple[Cursor, int]]
) -> None:
    (tmp_path / "f.json").write_text(content)
    (tmp_path / "f.json.gz").write_bytes(gzip.compress(content.encode()))
    assert read(tmp_path, "f.json", "json", "s.e") == found
    assert read(tmp_path, "f.json.gz", "json", "s.e") == found


@pytest.mark.parametrize("path", ["source.tx", "payload.source.tx"])
def test_an_epoch_beside_a_schema_block_is_read_as_it_was_counted(tmp_path: Path, path: str) -> None:
    fields = [{"field": "id", "type": "int64"}, {"field": "name", "type": "string"}]
    block = {"fields": [{"field": "after", "fields": fields}]}
    line = json.dumps({"schema": block, "payload": json.loads(event(1, tx=7))})
    log = opened(tmp_path, changes={"epoch": path}).log._folders["t"].whole
    land(tmp_path / "changes", "1.json", line)
    (file,) = Listing(log.where).files().values()
    assert read(tmp_path / "changes", "1.json", "json", path) == [(7, 1)]
    columns = {"id": field("id", "long"), "name": field("name", "string")}
    decode = log.form._envelopes(file, [log.form._shape(log.where, file, False)], columns)
    assert decode([line.encode()]).beside[own.EPOCH].to_pylist() == ["7"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"s": {}}', "every row needs an epoch"),
        ('{"s": {"e": 1.5}}', "every row needs an epoch"),
        ('{"s": {"e": 1}}\n{"s": {"e": true}}', "every row needs an epoch"),
        ('{"s": {"e": 1}}\n{"s": {"e": [1]}}', "every row needs an epoch"),
        ('{"s": {"e": 1}}\n{"s": {"e": "x"}}', "write the epoch as one type in all files"),
        ('{"s": {"e": 1', "rename it when complete"),
        ("[1]", "write one object per line"),
        ("7", "write one object per line"),
        ('"x"', "write one object per line"),
        ('{"s": 1}', "every row needs an epoch"),
    ],
)
def test_a_file_without_a_good_epoch_is_named(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(BadData, match=r"f\.json") as refused:
        read(tmp_path, "f.json", "json", "s.e")
    with typed(refused.value) as hint:
        hint.says(says)
        (tmp_path / "f.json").write_text('{"s": {"e": 1}}\n')
        assert read(tmp_path, "f.json", "json", "s.e") == [(1, 1)]


def test_epochs_of_one_type_are_in_all_files(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "t")
    upstream.pin()
    land(tmp_path / "changes", "1.json", event(1, tx=1))
    land(tmp_path / "changes", "2.json", event(1, tx="two"))
    with pytest.raises(BadData, match="integers in some files and strings in others") as refused:
        epochs(upstream)
    with typed(refused.value) as hint:
        hint.says("one not yet applied may be replaced")
        land(tmp_path / "changes", "2.json", event(1, tx=2))
        assert epochs(upstream) == [(1, 1), (2, 1)]


def test_csv_epochs_are_numbers_where_all_are(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text('e,x\n9,"a\nb"\n10,c\n')
    (tmp_path / "t.csv").write_text("e,x\n9,a\nb,c\n")
    header = CsvOptions(header=True, multi_line=True)
    assert read(tmp_path, "n.csv", "csv", "e", header) == [(9, 1), (10, 1)]
    assert read(tmp_path, "t.csv", "csv", "e", header) == [("9", 1), ("b", 1)]
    with pytest.raises(BadData, match=r"n\.csv") as refused:
        read(tmp_path, "n.csv", "csv", "e", CsvOptions(multi_line=True))
    with typed(refused.value) as hint:
        told = bool(hint.settings()["upstream.changes.csv.header"])
        assert read(tmp_path, "n.csv", "csv", "e", CsvOptions(multi_line=True, header=told)) == [(9, 1), (10, 1)]


def test_a_csv_row_without_an_epoch_is_named_by_its_line(tmp_path: Path) -> None:
    for name, row in (("a.csv", "U,,2"), ("b.csv", "U,NULL,2"), ("c.csv", 'U,"",2')):
        (tmp_path / name).write_text(f'op,tx,id\n\nI,1,"1\n"\n{row}\n')
        with pytest.raises(BadData, match=rf"{name}: line 5: epoch column 'tx' has no value"):
            read(tmp_path, name, "csv", "tx", CsvOptions(header=True, multi_line=True, null_value="NULL"))


def test_epochs_of_csv_are_what_its_dialect_says(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("tx;x\n01;'a\\';9'\n1;b\n10;c\n")
    dialect = CsvOptions(header=True, delimiter=";", quote="'", escape="\\")
    assert read(tmp_path, "f.csv", "csv", "tx", dialect) == [(1, 2), (10, 1)]
    (tmp_path / "empty.csv").write_text("")
    assert read(tmp_path, "empty.csv", "csv", "tx", dialect) == []
    (tmp_path / "large.csv").write_text("tx\n99999999999999999999\n")
    with pytest.raises(BadData, match=r"large\.csv: epoch column 'tx' holds 99999999999999999999"):
        read(tmp_path, "large.csv", "csv", "tx", dialect)


def test_a_csv_file_without_the_epoch_column_is_told_as_parquet_is(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("op,id\nI,1\n")
    pq.write_table(pa.table({"op": ["I"], "id": [1]}), tmp_path / "f.parquet")
    for name, kind in (("f.csv", "csv"), ("f.parquet", "parquet")):
        with pytest.raises(BadData, match=rf"{name}: no epoch column 'tx'") as error:
            read(tmp_path, name, kind, "tx", CsvOptions(header=True))
        with typed(error.value) as hint:
            hint.says("set upstream.changes.epoch to a column that every change file has; this one has op, id")
            assert read(tmp_path, name, kind, "id", CsvOptions(header=True)) == [(1, 1)]


def test_a_line_longer_than_a_block_of_the_parser_is_read(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps({"s": {"e": 1}, "pad": "x" * 3_000_000}) + "\n")
    assert read(tmp_path, "f.json", "json", "s.e") == [(1, 1)]


def test_an_epoch_that_was_applied_is_named_when_a_file_carries_it_again(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "x.parquet")
    upstream = opened(tmp_path, changes={"epoch": "source.tx"})
    upstream.pin()
    land(tmp_path / "changes", "1.json", event(1, tx=1), event(1, tx=2))
    position = Position.of(dict(upstream.observe(START, False).pending[-1].cursors))
    land(tmp_path / "changes", "2.json", event(2, tx=2), event(2, tx=3))
    with pytest.raises(
        BadData, match=r"2\.json holds epoch 2, but the job has already applied everything up to epoch 2"
    ):
        upstream.observe(position, False)


def test_a_second_tables_file_of_an_applied_epoch_is_named(tmp_path: Path) -> None:
    for table in ("a", "b"):
        parquet(tmp_path / "snapshot" / table / "x.parquet")
    upstream = opened(tmp_path, ("a", "b"), changes={"epoch": "source.tx"})
    pin = upstream.pin()
    land(tmp_path / "changes" / "a", "1.json", event(1, tx=1))
    land(tmp_path / "changes" / "a", "2.json", event(1, tx=2))
    first = upstream.observe(START, False).pending
    assert [e.cursors[0] for e in first] == [("epoch", 1)]
    position = Position.of(dict(first[0].cursors))
    memory = upstream.remembered(position)
    land(tmp_path / "changes" / "b", "1.json", event(1, tx=1))
    later = opened(tmp_path, ("a", "b"), changes={"epoch": "source.tx"})
    later.restore(pin)
    later.recall(memory)
    for one in (upstream, later):
        with pytest.raises(BadData, match=r"table 'b': .*1\.json holds epoch 1"):
            one.observe(position, False)


def test_a_file_applied_in_part_is_pending_with_the_rest(tmp_path: Path) -> None:
    parquet(tmp_path / "snapshot" / "x.parquet")
    upstream = opened(tmp_path, changes={"epoch": "source.tx"})
    pin = upstream.pin()
    land(tmp_path / "changes", "1.json", event(1, tx=1), event(1, tx=2))
    position = Position.of(dict(upstream.observe(START, False).pending[0].cursors))
    later = opened(tmp_path, changes={"epoch": "source.tx"})
    later.restore(pin)
    later.recall(upstream.remembered(position))
    for one in (upstream, later):
        assert [e.cursors[0] for e in one.observe(position, False).pending] == [("epoch", 2)]


def test_epochs_whose_texts_are_not_in_the_order_of_their_numbers_are_refused(tmp_path: Path) -> None:
    upstream = tables(tmp_path, "t")
    upstream.pin()
    for number in ("10", "9"):
        land(tmp_path / "changes", f"{number}.json", event(1, tx=number))
    with pytest.raises(BadData) as caught:
        epochs(upstream)
    assert "'10'" in str(caught.value)
    assert "'9'" in str(caught.value)
    with typed(caught.value) as hint:
        hint.says("write epochs as integers, or with the same number of digits, like '09' and '10'")
        for number in ("10", "9"):
            land(tmp_path / "changes", f"{number}.json", event(1, tx=number.zfill(2)))
        assert epochs(upstream) == [("09", 1), ("10", 1)]
        for number in ("10", "9"):
            land(tmp_path / "changes", f"{number}.json", event(1, tx=int(number)))
        assert epochs(upstream) == [(9, 1), (10, 1)]
