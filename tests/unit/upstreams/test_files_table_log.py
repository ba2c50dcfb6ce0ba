"""Change files as a log: order and times, names that come late, files that go."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from files_builders import at, event, land, opened, parquet, pending, restored, root
from hint_typed import typed

from backfill_cli.engine.job import checks
from backfill_cli.errors import Fatal, HistoryGone, Transient
from backfill_cli.model.job import Phase
from backfill_cli.model.position import START, Position
from backfill_cli.upstreams.files.reading import lines

__all__ = ["root"]


def test_files_are_pending_in_the_order_of_their_names(root: Path) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    for name in ("02.json", "10.json", "Z.json", "ü.json"):
        land(root / "changes", name, event(1))
    assert pending(upstream, pin.position) == ["02.json", "10.json", "Z.json", "ü.json"]
    assert pending(upstream, at("10.json")) == ["Z.json", "ü.json"]


def test_case_24_an_older_source_time_keeps_its_files_place_and_time_never_falls(root: Path) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    land(root / "changes", "1.json", event(1, ms=100), event(1, ms=500))
    land(root / "changes", "2.json", event(1, ms=300))
    land(root / "changes", "3.json", mtime_s=0.7)
    land(root / "changes", "4.json", event(1, ms=600), "null", "")
    assert [e.ms for e in upstream.observe(pin.position, False).pending] == [500, 500, 700, 700]


def test_tables_epochs_are_merged_by_time_each_log_in_its_order(tmp_path: Path) -> None:
    times = {"a": (100, 400, 200), "b": (150, 400)}
    for table, stamps in times.items():
        parquet(tmp_path / "snapshot" / table / "x.parquet")
        for index, ms in enumerate(stamps):
            land(tmp_path / "changes" / table, f"{index}.json", event(1, ms=ms))
    upstream = opened(tmp_path, ("a", "b"))
    upstream.pin()
    found = upstream.observe(Position(), False).pending
    assert [(e.ms, e.cursors[0]) for e in found] == [
        (100, ("a", "0.json")),
        (150, ("b", "0.json")),
        (400, ("a", "1.json")),
        (400, ("a", "2.json")),
        (400, ("b", "1.json")),
    ]


def test_case_46_a_late_name_below_the_position_is_named(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["2.json"]
    land(root / "changes", "1.json", event(1))
    with pytest.raises(Fatal, match=r"1\.json came late") as caught:
        upstream.observe(at("2.json"), False)
    assert str(caught.value.hint).endswith("rename it so that it sorts after that one; otherwise remove it")


def test_a_file_with_a_wrong_value_is_corrected_as_the_hint_says(root: Path) -> None:
    """failures.CHANGES_HINT, in the process that saw it before and in the next."""
    upstream = opened(root)
    pin = upstream.pin()
    for name in ("1.json", "2.json"):
        land(root / "changes", name, event(1))
    assert pending(upstream, Position()) == ["1.json", "2.json"]
    memory = upstream.log.remembered(at("1.json"))
    land(root / "changes", "2.json", event(1), event(2))
    assert pending(upstream, at("1.json")) == ["2.json"]
    after = opened(root)
    after.restore(pin)
    after.recall(memory)
    land(root / "changes", "2.json", event(3))
    assert pending(after, at("1.json")) == ["2.json"]


@pytest.mark.parametrize("way", ["rename", "remove"])
def test_case_46_both_ways_on_from_a_late_name_work(root: Path, way: str) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["2.json"]
    late = land(root / "changes", "1.json", event(2))
    with pytest.raises(Fatal, match="came late") as refused:
        upstream.observe(at("2.json"), False)
    with typed(refused.value) as hint:
        hint.says("rename it so that it sorts after that one; otherwise remove it")
        if way == "remove":
            late.unlink()
        else:
            late.rename(root / "changes" / "3.json")
        assert pending(upstream, at("2.json")) == (["3.json"] if way == "rename" else [])


def test_a_name_that_comes_before_others_still_pending_is_not_late(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    for name in ("1.json", "3.json"):
        land(root / "changes", name, event(1))
    assert pending(upstream, Position()) == ["1.json", "3.json"]
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, at("1.json")) == ["2.json", "3.json"]


def test_case_46_a_plan_names_a_late_file_of_a_job_that_exists(root: Path) -> None:
    """As its next run would: what the job remembers of its files is in its checkpoint."""
    upstream = opened(root)
    pin = upstream.pin()
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["2.json"]
    logs = SimpleNamespace(memory=lambda _: memory, acknowledged=lambda _: at("2.json"))
    catalog = SimpleNamespace(job=lambda _: SimpleNamespace(live=False, phase=Phase.UPSTREAM), change_logs=logs)

    def look() -> None:
        job, after = SimpleNamespace(name="j", pin=pin), SimpleNamespace(rows=opened(root))
        checks._require_as_left(job, catalog, after)  # type: ignore[arg-type]

    memory = upstream.log.remembered(at("2.json"))
    look()
    land(root / "changes", "1.json", event(2))
    with pytest.raises(Fatal, match=r"1\.json came late"):
        look()


def test_names_before_the_load_are_nobodys_concern(root: Path) -> None:
    land(root / "changes", "2.json", event(1), mtime_s=1_000_000)
    pin = opened(root, as_of="2.json").pin()
    land(root / "changes", "1.json", event(1), mtime_s=2_000_000)
    upstream = opened(root, as_of="2.json")
    upstream.restore(pin)
    assert pending(upstream, pin.position) == []


def test_case_42_a_pending_file_that_vanishes_is_named(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1))
    assert pending(upstream, Position()) == ["1.json"]
    path.unlink()
    with pytest.raises(HistoryGone, match=r"1\.json is gone"):
        upstream.observe(Position(), False)


def test_consumed_files_may_go(root: Path) -> None:
    upstream = opened(root)
    upstream.pin()
    path = land(root / "changes", "1.json", event(1))
    land(root / "changes", "2.json", event(1))
    assert pending(upstream, Position()) == ["1.json", "2.json"]
    path.unlink()
    assert pending(upstream, at("1.json")) == ["2.json"]


def test_an_idle_upstream_reads_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "1.json", event(1))
    os.utime(root / "changes", (1, 1))
    os.utime(root / "snapshot", (1, 1))
    upstream.observe(Position(), True)

    def never(*_: object) -> None:
        raise AssertionError("listed again")

    monkeypatch.setattr(os, "scandir", never)
    monkeypatch.setattr(os, "listdir", never)
    monkeypatch.setattr(lines, "last", never)
    assert pending(upstream, at("1.json")) == []


def test_a_look_that_fails_in_the_middle_forgets_no_file(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = opened(root)
    upstream.pin()
    land(root / "changes", "1.json", event(1))
    assert pending(upstream, Position()) == ["1.json"]
    for name in ("2.json", "3.json", "4.json"):
        land(root / "changes", name, event(1))
    (root / "changes" / "1.json").unlink()
    os.utime(root / "changes", (1, 1))
    real, failures = os.stat, [OSError(errno.EIO, "input/output error")]

    def stat(path: Any, *args: Any, **kwargs: Any) -> os.stat_result:
        if str(path).endswith("3.json") and failures:
            raise failures.pop()
        return real(path, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", stat)
        with pytest.raises(Transient):
            upstream.observe(at("1.json"), False)
        assert not failures
        assert pending(upstream, at("1.json")) == ["2.json", "3.json", "4.json"]


@pytest.mark.parametrize("gone", ["02.json", "10.json"])
@pytest.mark.parametrize("position", [START, at("01.json")])
def test_files_that_waited_and_went_between_two_processes_are_named(
    root: Path, gone: str, position: Position
) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    for name in ("01.json", "02.json", "10.json"):
        land(root / "changes", name, event(1))
    upstream.observe(pin.position, False)
    memory = upstream.remembered(position)
    land(root / "changes", "11.json", event(2))
    restored(root, pin, memory).observe(position, False)
    (root / "changes" / gone).unlink()
    with pytest.raises(HistoryGone, match=r"1 of \d change files .* up to '10.json', are gone"):
        restored(root, pin, memory).observe(position, False)


def test_files_that_were_applied_may_go_and_more_may_come(root: Path) -> None:
    upstream = opened(root)
    pin = upstream.pin()
    for name in ("01.json", "02.json"):
        land(root / "changes", name, event(1))
    upstream.observe(pin.position, False)
    memory = upstream.remembered(at("01.json"))
    (root / "changes" / "01.json").unlink()
    land(root / "changes", "03.json", event(2))
    assert pending(restored(root, pin, memory), at("01.json")) == ["02.json", "03.json"]
