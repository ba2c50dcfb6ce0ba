"""The data files of an Iceberg table, as its manifests list them, and what is wrong with them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from backfill_cli.errors import Fatal
from backfill_cli.lake.damage import FROM_COPY, Stored, cut, damaged, intact, lost, unreadable
from backfill_cli.lake.iceberg.metadata import Held

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.snapshots import Snapshot


def snapshot_files(held: Held, snapshot: "Snapshot") -> "list[DataFile]":
    """The snapshot's data files. Raises Fatal for a manifest that is missing, cut off or damaged."""
    return _files(held, snapshot, changed=False)


def changed_files(held: Held, snapshot: "Snapshot") -> "list[DataFile]":
    """The data files that the snapshot added or removed. Raises as `snapshot_files` does."""
    return _files(held, snapshot, changed=True)


def _files(held: Held, snapshot: "Snapshot", changed: bool) -> "list[DataFile]":
    with intact(snapshot.manifest_list):
        manifests = snapshot.manifests(held.io)
    said = snapshot.summary.additional_properties if snapshot.summary is not None else {}
    if not manifests and said.get("total-data-files", "0") != "0":
        raise damaged(snapshot.manifest_list, "it lists no manifest")
    made: list[DataFile] = []
    for one in manifests:
        if changed and one.added_snapshot_id != snapshot.snapshot_id:
            continue
        with intact(one.manifest_path):
            entries = one.fetch_manifest_entry(held.io, discard_deleted=not changed)
        counts = [one.added_files_count, one.existing_files_count, one.deleted_files_count if changed else 0]
        expected = sum(count or 0 for count in counts)
        if None not in counts and len(entries) != expected:  # cut off where a block ends, it can be read
            raise damaged(one.manifest_path, f"it lists {len(entries)} files of {expected}")
        made += [entry.data_file for entry in entries]
    return made


def faulty(held: Held, files: "Sequence[DataFile]", content: bool) -> Fatal | None:
    """What is wrong with one of these files; None if nothing is. content: whether they are read to their end."""
    if not files:
        return None
    places = [held.io.parse_location(one.file_path) for one in files]
    fs = held.io.fs_by_scheme(*places[0][:2])
    known = [
        Stored(path, one.file_size_in_bytes)
        for one, (scheme, netloc, path) in zip(files, places, strict=True)
        if (scheme, netloc) == places[0][:2]
    ]
    if (path := lost(fs, known)) is not None:
        return Fatal(f"{path} is missing", FROM_COPY)
    return cut(fs, known) or (unreadable(fs, known) if content else None)


def snapshot_fault(held: Held, snapshot: "Snapshot") -> Fatal | None:
    """What is wrong with a data file of the snapshot; None if nothing is. Raises as `snapshot_files` does."""
    return faulty(held, snapshot_files(held, snapshot), content=True)
