"""What a window of PostgreSQL's log cannot supply: refused with the way on, which is then taken."""

from pathlib import Path

import pytest
from hint_typed import typed

from backfill_cli.cdc.files import LogTable, ValueLost
from backfill_cli.cdc.net import LOST, UNSENT
from backfill_cli.cdc.window import Bounds, WindowRequest, further
from backfill_cli.errors import BadData, Transient
from backfill_cli.formats.parquet_writer import writing
from backfill_cli.upstreams.postgres.take import SlotTable
from backfill_cli.upstreams.postgres.types import Column
from backfill_cli.upstreams.postgres.values import from_text

TEXT = Column("id", 25, -1, "text", False, True, "", 25, -1, "b", 0, -1, ",")
FULL, PART = frozenset({"id"}), frozenset({"other"})


def net(identity: frozenset[str]) -> SlotTable:
    table = SlotTable(LogTable("public.t", 1, (TEXT,), ("id",)))
    table.identify(identity)
    return table


def test_an_identity_that_lacks_the_key_is_made_full() -> None:
    with pytest.raises(BadData, match=r"its replica identity lacks a column of the key \(id\)") as refused:
        net(PART).delete([b"k"], 1, 10)
    with typed(refused.value) as hint:
        assert hint.statements() == ["ALTER TABLE public.t REPLICA IDENTITY FULL"]
        net(FULL).delete([b"k"], 1, 10)


@pytest.mark.parametrize("value", [None, UNSENT])
def test_a_key_without_a_value_is_in_the_identity_of_a_job_that_starts_over(value: object) -> None:
    lacking = net(FULL)
    lacking.insert([value], 1, 10)  # type: ignore[list-item]
    with pytest.raises(BadData, match="a change with an incomplete key") as refused:
        lacking.require_keys()
    with typed(refused.value) as hint:
        assert hint.statements() == ["ALTER TABLE public.t REPLICA IDENTITY FULL"]
        whole = net(FULL)
        whole.insert([b"k"], 1, 10)
        whole.require_keys()


def test_a_value_that_no_longer_window_has_is_in_the_log_of_a_full_identity() -> None:
    request: WindowRequest[Column] = WindowRequest(0, 90, (), "", "a")
    ended = Bounds(0, 50, 50, widens=True)
    with pytest.raises(ValueLost, match="after that, columns of a table were dropped or changed") as refused:
        further(request, ended, 50, net(FULL).lost({b"new": [LOST]}))
    with typed(refused.value) as hint:
        hint.says("start over, with REPLICA IDENTITY FULL for a table whose keys change")
        moved = net(FULL)
        assert moved.update([b"new"], False, [b"old"], True, 1, 10)
        assert moved.left_out() == ()


def test_text_that_is_no_utf8_comes_from_an_encoding_that_can_be_converted() -> None:
    with pytest.raises(BadData, match="column 'id'") as refused:
        from_text(TEXT, [b"\xff"])
    with typed(refused.value) as hint:
        hint.says("the database's encoding must be UTF8, or convertible to it")
        assert from_text(TEXT, ["ÿ".encode()]).to_pylist() == ["ÿ"]


def test_a_staging_file_is_written_once_there_is_space(tmp_path: Path) -> None:
    def write(space: bool) -> None:
        with writing(tmp_path / "file"):
            if not space:
                raise OSError(28, "No space left on device")
            (tmp_path / "file").write_bytes(b"rows")

    with pytest.raises(Transient, match="No space left on device") as refused:
        write(space=False)
    with typed(refused.value) as hint:
        hint.says("free disk space there, or change job.staging")
        write(space=True)
    assert (tmp_path / "file").read_bytes() == b"rows"
