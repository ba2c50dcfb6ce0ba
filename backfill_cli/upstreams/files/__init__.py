"""Files as an upstream: Parquet, JSON or CSV snapshots, and a landing zone of change files."""

from collections.abc import Mapping, Sequence
from typing import Any

from backfill_cli.contracts import (
    Looked,
    Named,
    Pair,
    SnapshotConnector,
    SnapshotSide,
    Source,
    TableSpec,
    UpstreamConnector,
)
from backfill_cli.upstreams.files.options import (
    FilesOptions,
    SnapshotFiles,
    SnapshotSideOptions,
    refuse_shared_paths,
)


def _open(options: FilesOptions, tables: Sequence[TableSpec]) -> Source:
    from backfill_cli.upstreams.files.changes.side import FilesChanges
    from backfill_cli.upstreams.files.snapshot.side import FilesSnapshot

    paths = {"upstream.snapshot.path": options.snapshot.path}
    if options.changes is not None:
        paths["upstream.changes.path"] = options.changes.path
    refuse_shared_paths(paths, len(tables))
    follows = options.changes is not None
    quarantines = options.on_error == "quarantine"
    possible = options.changes is None or options.changes.epoch is None
    snapshot = FilesSnapshot(options.snapshot, tables, quarantines if possible else None)
    return Pair(snapshot, FilesChanges(options, tables), follows, quarantines)


def _open_snapshot(options: SnapshotSideOptions, tables: Sequence[TableSpec]) -> SnapshotSide:
    from backfill_cli.upstreams.files.snapshot.side import FilesSnapshot

    refuse_shared_paths({"upstream.snapshot.path": options.path}, len(tables))
    return FilesSnapshot(options, tables)


def _look(named: Named) -> Looked:
    from backfill_cli.upstreams.files.inference.infer import infer

    return infer(named)


def _fingerprint(options: FilesOptions) -> Mapping[str, Any]:
    """The options that change results.

    Left out: `changes.columns` (columns are declared when they appear); `changes.tables` (a job that met a line of
    another table continues once this option names the tables meant); `snapshot.ignore` and `sparse` (columns that
    may be missing); `changes.consecutive`; `changes.accept_growth`; `on_error`.
    """
    told: dict[str, Any] = options.model_dump(mode="json", by_alias=True, exclude={"on_error"})
    told["snapshot"] = _snapshot_fingerprint(options.snapshot)
    if told["changes"] is not None:
        for name in ("columns", "tables", "consecutive", "accept_growth"):
            del told["changes"][name]
    return told


def _snapshot_fingerprint(options: SnapshotFiles) -> Mapping[str, Any]:
    told = options.model_dump(mode="json", by_alias=True, exclude={"ignore", "sparse"})
    return told if told["folders"] else {name: value for name, value in told.items() if name != "folders"}


connector = UpstreamConnector(
    FilesOptions,
    _open,
    _fingerprint,
    snapshot=SnapshotConnector(SnapshotSideOptions, _open_snapshot, _snapshot_fingerprint),
    look=_look,
)
