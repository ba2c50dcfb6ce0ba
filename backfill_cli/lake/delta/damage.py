"""What is wrong with a table, found in its log and files: the library's words for it name Rust's structures."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from pyarrow import fs as pafs

from backfill_cli.errors import START_OVER, BackfillError, Fatal, HistoryGone, UsageError, in_config
from backfill_cli.lake import damage
from backfill_cli.lake.damage import FROM_COPY, Stored, unreadable

if TYPE_CHECKING:
    from backfill_cli.lake.delta.edge import Where

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\..*parquet|(\d{20})\.checkpoint\..*json")


@dataclass(frozen=True, slots=True)
class Log:
    """The versions of which the log has a file, and those of which it has a checkpoint, or a part of one."""

    commits: frozenset[int]
    checkpoints: frozenset[int]

    def needed(self, version: int) -> range:
        """The versions whose commits have to be read for this one, itself included."""
        return range(max((one for one in self.checkpoints if one <= version), default=-1) + 1, version + 1)

    def missing(self, version: int) -> list[int]:
        return [one for one in self.needed(version) if one not in self.commits]


def found(where: "Where", version: int | None) -> BackfillError | None:
    """The error for a log in which a version (the newest, if None) cannot be read; None if its files are whole.

    A log without any commit is not examined.
    """
    log = _listed(where)
    if log is None or not log.commits:
        return None
    newest = max(log.commits)
    if version is not None and version > newest:
        return UsageError(
            f"{where.shown}: has no version {version}: its newest is {newest}",
            in_config('set upstream.version = "latest", or a version that exists'),
        )
    if hole := log.missing(newest):
        return lost(where, hole[0], newest)
    if version is not None and log.missing(version):
        return HistoryGone(
            f"{where.shown}: its log no longer has version {version}",
            START_OVER
            + ', with upstream.version = "latest" or a version that exists; delta.logRetentionDuration says how '
            "long versions are kept",
        )
    wanted = newest if version is None else version
    return next(chain(_damaged(where, log, wanted), _damaged_checkpoint(where, wanted)), None)


def lost(where: "Where", version: int, later: int) -> Fatal:
    """The error for a version that the log lacks, though it has later ones."""
    return Fatal(
        f"{where.shown}: version {version} is missing from its log, which has version {later}: what it changed is "
        f"unknown ({where.log_file(version)})",
        FROM_COPY,
    )


def _listed(where: "Where") -> Log | None:
    try:
        infos = where.place.fs.get_file_info(pafs.FileSelector(f"{where.place.folder}/_delta_log", True))
    except OSError:
        return None
    names = [info.base_name for info in infos if info.type == pafs.FileType.File]
    commits = (_COMMIT.fullmatch(name) for name in names)
    checkpoints = (_CHECKPOINT.fullmatch(name) for name in names)
    return Log(
        frozenset(int(one[1]) for one in commits if one),
        frozenset(int(one[1] or one[2]) for one in checkpoints if one),
    )


def _damaged(where: "Where", log: Log, version: int) -> Iterator[Fatal]:
    for one in log.needed(version):
        try:
            with where.place.fs.open_input_stream(where.log_file(one)) as file:
                lines = file.read().splitlines()
            if not any(map(bytes.strip, lines)):
                raise ValueError("it is empty")
            for line in lines:
                json.loads(line or "{}")
        except ValueError:
            yield damaged(where, one)
        except OSError:
            return


def _damaged_checkpoint(where: "Where", version: int) -> Iterator[Fatal]:
    """The error for a file of the checkpoint from which this version is read."""
    folder, found = f"{where.place.folder}/_delta_log", dict[str, int]()
    try:
        for info in where.place.fs.get_file_info(pafs.FileSelector(folder)):
            if (one := _CHECKPOINT.fullmatch(info.base_name)) and int(one[1] or one[2]) <= version:
                found[info.path] = int(one[1] or one[2])
        with where.place.fs.open_input_stream(f"{folder}/_last_checkpoint") as file:
            hinted = int(json.loads(file.read())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        hinted = -1  # a hint only
    if hinted > max(found.values(), default=-1) and hinted <= version:
        yield Fatal(
            f"{where.shown}: the checkpoint of version {hinted} is missing from its log "
            f"({folder}/{hinted:020d}.checkpoint.*)",
            FROM_COPY,
        )
    newest = max(found.values(), default=-1)
    files = [Stored(path) for path, one in found.items() if one == newest]
    if (fault := unreadable(where.place.fs, files)) is not None:
        yield fault


def missing(where: "Where", path: str) -> BackfillError:
    return Fatal(f"{where.shown}: {path} is missing", FROM_COPY)


def faulty(
    where: "Where",
    files: Callable[[], Sequence[Stored]],
    gone: "Callable[[Where, str], BackfillError]" = missing,
) -> BackfillError | None:
    """What is wrong with the table's log, or with one of these data files; None if nothing is.

    gone: the error for one that does not exist.
    """
    try:
        if (fault := found(where, None)) is not None:
            return fault
        known = files()
    except BackfillError as fault:
        return fault
    if (path := damage.lost(where.place.fs, known)) is not None:
        return gone(where, path)
    return damage.cut(where.place.fs, known) or unreadable(where.place.fs, known)


def damaged(where: "Where", version: int) -> Fatal:
    """The error for a version whose file is not what a writer wrote."""
    return Fatal(f"{where.shown}: version {version} of its log is damaged: {where.log_file(version)}", FROM_COPY)
