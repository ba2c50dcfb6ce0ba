"""What a sink in a lake keeps beside its tables: written once, counted by a marker, and no more than is needed."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hint_typed import typed
from pyarrow.fs import LocalFileSystem

from backfill_cli.contracts import EpochCommit, SavedJob
from backfill_cli.errors import BackfillError, Fatal, Transient
from backfill_cli.lake import blobs
from backfill_cli.lake import state as lake_state
from backfill_cli.lake.blobs import Blobs
from backfill_cli.lake.state import Claim, JobRecord, JobState, jobs
from backfill_cli.model.checkpoint import Checkpoint, Marker, Owner
from backfill_cli.model.codec import encode
from backfill_cli.model.job import Phase
from backfill_cli.model.plan import Staged
from backfill_cli.model.position import Position
from backfill_cli.model.split import SplitProgress, SplitStatus

NEW = Marker(0, 1, "")
DONE = SplitProgress(SplitStatus.CONSUMED, None, 9, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Blobs:
    return Blobs(LocalFileSystem(), str(tmp_path / "state"))


def a_commit(epoch: int, attempt: str = "a", definition: str = "{}", **splits: SplitProgress) -> EpochCommit:
    moved = {("t", name): split for name, split in splits.items()}
    checkpoint = Checkpoint(epoch, 0, 1, attempt, "{}", Phase.SNAPSHOT, Position.of({"log": epoch}), moved)
    saved = SavedJob(definition, checkpoint)
    return EpochCommit("j", epoch, epoch - 10, 1, attempt, (), "", Staged(attempt), (), saved)


def at(epoch: int, attempt: str = "a") -> Marker:
    return Marker(epoch, 1, attempt)


def test_the_last_job_takes_the_folder_with_it(folder: Blobs, tmp_path: Path) -> None:
    mine, other = (JobState(folder, name) for name in ("j", "k"))
    for state in (mine, other):
        state.own(Owner("c", "h", "p"), None)
    mine.forget()
    assert [record.job for record in jobs(folder)] == ["k"]
    other.forget()
    assert not (tmp_path / "state").exists()
    other.forget()
    mine.own(Owner("c", "h", "p"), None)
    assert [record.job for record in jobs(folder)] == ["j"]


def test_a_folder_that_another_process_removes_as_empty_is_made_again(
    folder: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = iter([True])

    def sweep(_: str) -> None:
        if next(removed, False):
            folder.below("j").delete_empty()
            folder.delete_empty()
            assert not (tmp_path / "state").exists()

    monkeypatch.setattr(blobs, "_sweep", sweep)
    JobState(folder, "j").own(Owner("c", "h", "p"), None)
    assert [record.job for record in jobs(folder)] == ["j"]


def test_a_blob_is_written_once_and_whole(folder: Blobs, tmp_path: Path) -> None:
    folder.create("a.json", b"one")
    with pytest.raises(FileExistsError):
        folder.create("a.json", b"two")
    assert (folder.read("a.json"), folder.names()) == (b"one", ["a.json"])
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["a.json"], "no draft is left"
    folder.delete("a.json")
    folder.delete("a.json")
    assert folder.names() == folder.below("none").names() == []
    folder.below("none").delete_all()


def test_a_record_that_another_process_changed_meanwhile_is_asked_about_again(folder: Blobs) -> None:
    mine, theirs = JobState(folder, "j"), JobState(folder, "j")
    mine.change(lambda record: JobRecord("j"))
    seen: list[JobRecord | None] = []

    def claims(record: JobRecord | None) -> JobRecord:
        if not seen:
            theirs.change(lambda held: replace(held or JobRecord("j"), owner=Owner("id", "host", "/path")))
        seen.append(record)
        return replace(record or JobRecord("j"), claims={"t": Claim("/lake/t", "x")})

    assert mine.change(claims) == JobRecord("j", {"t": Claim("/lake/t", "x")}, Owner("id", "host", "/path"))
    assert len(seen) == 2
    assert theirs.record() == mine.record()


def test_a_record_that_others_keep_changing_is_changed_once_they_are_gone(
    folder: Blobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = JobState(folder, "j")

    def taken(*_: object) -> None:
        raise FileExistsError

    with monkeypatch.context() as patch:
        patch.setattr(Blobs, "create_alone", taken)
        with pytest.raises(Transient, match="other processes keep changing its record") as busy:
            mine.change(lambda record: JobRecord("j"))
    with typed(busy.value) as hint:
        hint.says("let only one runner have the job")
        assert mine.change(lambda record: JobRecord("j")) == JobRecord("j")


def test_a_state_that_others_build_on_is_put_back_where_it_was(
    folder: Blobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_state, "FEW_SPLITS", 0)
    JobState(folder, "j").save(a_commit(10, a=DONE), NEW)
    JobState(folder, "j").save(a_commit(20, b=DONE), at(10))
    base = next((tmp_path / "state" / "j").glob("epoch-*10-*.json"))
    base.rename(tmp_path / "copy")
    with pytest.raises(Fatal, match="is gone") as lost:
        JobState(folder, "j").saved(at(20))
    with typed(lost.value) as hint:
        hint.says("restore it")
        (tmp_path / "copy").rename(base)
        saved = JobState(folder, "j").saved(at(20))
    assert saved is not None
    assert set(saved.checkpoint.splits) == {("t", "a"), ("t", "b")}


@pytest.mark.parametrize(
    "how", [lambda _: b"", lambda whole: whole[:-1], lambda whole: whole[::-1], lambda _: b"\xff"]
)
def test_a_file_of_the_state_that_is_damaged_or_gone_is_named_and_put_back(
    folder: Blobs, tmp_path: Path, how: Callable[[bytes], bytes]
) -> None:
    state = JobState(folder, "j")
    state.change(lambda record: JobRecord("j"))
    state.save(a_commit(10, a=DONE), NEW)

    def read() -> None:
        again = JobState(folder, "j")
        again.record()
        again.saved(at(10))

    for file in (tmp_path / "state" / "j").iterdir():
        whole = file.read_bytes()
        file.write_bytes(how(whole))
        with pytest.raises(Fatal, match=f"{file.name} is damaged") as caught:
            read()
        if file.name.startswith("definition-"):
            file.unlink()
            with pytest.raises(Fatal, match=f"{file.name} is gone"):
                read()
        with typed(caught.value) as hint:
            hint.says("restore it")
            file.write_bytes(whole)
            read()


@pytest.mark.parametrize(
    ("number", "kind", "way_on"),
    [(errno.ENOSPC, Transient, "df"), (errno.EACCES, Fatal, "ls"), (errno.EIO, Transient, "")],
)
def test_what_the_system_refuses_to_write_is_told_with_the_way_on(
    folder: Blobs, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[BackfillError], way_on: str
) -> None:
    folder.create("first.json", b"")

    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refused)
        with pytest.raises(kind, match=f"a.json: {os.strerror(number)}") as caught:
            folder.create("a.json", b"one")
    with typed(caught.value) as hint:
        if way_on:
            hint.run_in_shell(way_on)
        else:
            hint.says("it is retried automatically")
        folder.create("a.json", b"one")
        assert folder.read("a.json") == b"one"


def test_records_of_all_jobs_are_found_whatever_their_names_hold(folder: Blobs) -> None:
    assert jobs(folder) == []
    for name in ("a/b", "c d", "ü"):
        JobState(folder, name).change(lambda record, name=name: JobRecord(name))  # type: ignore[misc]
    assert sorted(record.job for record in jobs(folder)) == ["a/b", "c d", "ü"]


def test_a_record_of_a_newer_backfill_is_refused(folder: Blobs) -> None:
    folder.below("j").create("job-000000001.json", encode(JobRecord("j", layout=99)).encode())
    with pytest.raises(Fatal, match="layout 99"):
        JobState(folder, "j").record()


def test_a_state_counts_once_a_marker_names_its_epoch_and_attempt(folder: Blobs) -> None:
    job = JobState(folder, "j")
    job.save(a_commit(10, s=DONE), NEW)
    job.save(a_commit(20, "b", definition='{"new": 1}'), at(10))
    first, second = job.saved(at(10)), JobState(folder, "j").saved(at(20, "b"))
    assert job.saved(NEW) is job.saved(at(20, "another")) is None
    assert first is not None
    assert second is not None
    assert (first.definition, second.definition) == ("{}", '{"new": 1}')
    assert first.checkpoint.epoch == 10
    assert second.checkpoint == replace(a_commit(20, "b").saved.checkpoint, splits={("t", "s"): DONE})


def test_an_epoch_that_was_never_committed_leaves_no_split_of_its_own(folder: Blobs) -> None:
    job = JobState(folder, "j")
    job.save(a_commit(10, a=DONE), NEW)
    job.save(a_commit(20, "lost", b=DONE), at(10))
    job.save(a_commit(30, c=DONE), at(10))
    saved = job.saved(at(30))
    assert saved is not None
    assert set(saved.checkpoint.splits) == {("t", "a"), ("t", "c")}


@pytest.mark.parametrize("few", [256, 2])
def test_many_epochs_leave_few_files_and_all_splits(
    folder: Blobs, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(lake_state, "FEW_SPLITS", few)
    monkeypatch.setattr(lake_state, "LONGEST_CHAIN", 4)
    job, before = JobState(folder, "j"), NEW
    most = 0
    for epoch in range(10, 400, 10):
        split = SplitProgress(SplitStatus.CONSUMED, epoch, epoch, epoch)
        fresh = JobState(folder, "j") if epoch % 70 == 0 else job
        fresh.save(a_commit(epoch, definition=str(epoch // 100), **{f"s{epoch % 9}": split}), before)
        before = at(epoch)
        most = max(most, len(folder.below("j").names()))
        saved = JobState(folder, "j").saved(before)
        assert saved is not None
        assert saved.definition == str(epoch // 100)
        latest = {f"s{e % 9}": e for e in range(10, epoch + 1, 10)}
        assert {name: split.rows for (_, name), split in saved.checkpoint.splits.items()} == latest
    assert most <= (4 if few == 256 else 13)


def test_a_late_runner_removes_nothing_that_counts(folder: Blobs) -> None:
    late, now = JobState(folder, "j"), JobState(folder, "j")
    late.save(a_commit(10, a=DONE), NEW)
    before = at(10)
    for epoch in (20, 30, 40):
        now.save(a_commit(epoch, "b", definition="changed"), before)
        before = at(epoch, "b")
    late.save(a_commit(20, "late", b=DONE), at(10))
    saved = JobState(folder, "j").saved(before)
    assert saved is not None
    assert (saved.definition, set(saved.checkpoint.splits)) == ("changed", {("t", "a")})


def test_a_repeat_writes_the_same_state_and_forget_leaves_nothing(folder: Blobs, tmp_path: Path) -> None:
    job = JobState(folder, "j")
    job.save(a_commit(10, a=DONE), NEW)
    job.save(a_commit(10, a=DONE), NEW)
    assert len(folder.below("j").names()) == 2
    job.forget()
    assert (job.record(), job.saved(at(10)), list(tmp_path.iterdir())) == (None, None, [])
