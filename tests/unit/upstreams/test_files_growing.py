"""Change files that grow, are replaced or are half written, on disks and on object stores."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from files_builders import at, event, land, opened, pending, restored, root
from hint_typed import typed
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.errors import BadData, Fatal
from backfill_cli.formats.listing import File, place
from backfill_cli.model.position import Position
from backfill_cli.upstreams.files.changes import side
from backfill_cli.upstreams.files.reading import lines

__all__ = ["root"]


def test_case_46_a_consumed_file_that_grows_is_named(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1))
    assert pending(upstream, Position()) == ["1.json"]
    with path.open("a") as file:
        file.write(event(2) + "\n")
    with pytest.raises(Fatal, match="after it was read"):
        upstream.observe(at("1.json"), False)


def as_on_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Change files are listed, and looked at, as those of a remote place."""
    monkeypatch.setattr(side, "place", lambda path, table: replace(place(path, table), local=False))


def test_case_46_an_object_that_grows_after_it_was_applied_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_an_object_store(monkeypatch)
    upstream = opened(root)
    pin = upstream.pin()
    path = land(root / "changes", "1.json", event(1))
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["1.json", "2.json"]
    assert pending(upstream, at("1.json")) == ["2.json"]
    with path.open("a") as file:
        file.write(event(2) + "\n")
    with pytest.raises(Fatal, match=r"1\.json changed from \d+ to \d+ bytes after it was read") as caught:
        upstream.observe(at("1.json"), False)
    with typed(caught.value) as hint:
        hint.says("land the added part as a separate file with a later name, and remove this one")
        land(root / "changes", "3.json", event(2))
        path.unlink()
        after = restored(root, pin, upstream.remembered(at("1.json")))
        assert pending(after, at("1.json")) == ["2.json", "3.json"]


def test_an_object_that_is_replaced_is_remembered_as_it_was_when_it_was_read(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_on_an_object_store(monkeypatch)
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1, ms=1))
    upstream.observe(Position(), False)
    with path.open("a") as file:
        file.write(event(2, ms=9) + "\n")
    assert [e.ms for e in upstream.observe(Position(), False).pending] == [9]
    assert pending(upstream, at("1.json")) == []
    os.utime(path, (1, 1))
    with pytest.raises(Fatal, match=r"1\.json was rewritten"):
        upstream.observe(at("1.json"), False)


def test_a_pending_file_that_grows_in_place_is_looked_at_again(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1, ms=1))
    os.utime(root / "changes", (1, 1))
    before = upstream.observe(Position(), False).pending[0]
    with path.open("a") as file:
        file.write(event(2, ms=9) + "\n")
    after = upstream.observe(Position(), False).pending[0]
    assert (before.ms, after.ms) == (1, 9)
    assert after.size_bytes > before.size_bytes


@pytest.mark.parametrize("content", ['{"op": "c", "after": {"id"', '{"no": "envelope"}', "[1]", "\x00\x01"])
def test_case_46_a_half_written_or_foreign_file_is_named(root: Path, content: str) -> None:
    upstream = opened(root)
    upstream.pin()
    (root / "changes" / "1.json").write_text(content)
    with pytest.raises(BadData, match=r"1\.json"):
        upstream.observe(Position(), False)


def test_case_46_a_half_written_parquet_file_is_named(root: Path) -> None:
    upstream = opened(root, changes={"format": "dms"})
    upstream.pin()
    (root / "changes" / "1.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadData, match=r"1\.parquet"):
        upstream.observe(Position(), False)


@given(st.lists(st.sampled_from(["", "null", " ", "a", "b" * 70_000, "ü{}"]), max_size=12), st.booleans())
def test_first_and_last_lines_are_those_that_are_not_blank(
    tmp_path_factory: pytest.TempPathFactory, content: list[str], ended: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "x.json"
    path.write_text("\n".join(content) + ("\n" if ended else ""))
    kept = [line for line in content if line.strip() not in ("", "null")]
    where, file = place(str(path), "t"), File("x.json", str(path), path.stat().st_size, 0)
    assert list(lines.last(where, file, "json")) == kept[::-1]
    assert lines.first(where, file, "json") == (kept[0] if kept else None)
