"""What is wrong with the files of a lake's table, found in the files themselves.

Asked once a reader failed: what readers say of a damaged file seldom names it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow.parquet as pq
from pyarrow.fs import FileSystem, FileType

from backfill_cli.errors import BackfillError, Fatal

FROM_COPY = "restore that file from a copy of the table"
"""The hint where a file of a table is damaged, or gone, and its writers still need it."""

MOST_FILES = 10_000
"""Files that are looked for: on an object store, each is a request."""

MOST_BYTES = 1 << 28
"""Of data, read to its end: seconds on a disk."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A data file as the table's metadata has it. path: in its file system. size_bytes: None if not recorded."""

    path: str
    size_bytes: int | None = None


def unreadable(fs: FileSystem, files: Sequence[Stored]) -> Fatal | None:
    """The error for the first of these Parquet files that cannot be read to its end; None if there is none.

    Files are read up to MOST_BYTES together.
    """
    left = MOST_BYTES
    for one in files:
        left -= one.size_bytes or 0
        if left < 0:
            return None
        if one.path.endswith(".parquet") and (found := _unreadable(fs, one.path)) is not None:
            return found
    return None


def _unreadable(fs: FileSystem, path: str) -> Fatal | None:
    try:
        with intact(path), fs.open_input_file(path) as source:
            for _ in pq.ParquetFile(source).iter_batches():
                pass
    except OSError:
        return None
    except Fatal as fault:
        return fault
    return None


def missing(path: str) -> Fatal:
    return Fatal(f"{path} is missing", FROM_COPY)


def faulty(
    fs: FileSystem,
    files: Sequence[Stored],
    gone: Callable[[str], BackfillError] = missing,
    content: bool = True,
) -> BackfillError | None:
    """What is wrong with one of these files; None if nothing is.

    gone: the error for one that does not exist. content: whether they are read to their end.
    """
    known = files[:MOST_FILES]
    try:
        infos = fs.get_file_info([one.path for one in known])
    except (OSError, ValueError):
        infos = []  # the failure that is explained is about more than a file
    found = list(zip(known, infos, strict=False))
    for one, info in found:
        if info.type == FileType.NotFound:
            return gone(one.path)
    for one, info in found:
        if None not in (info.size, one.size_bytes) and info.size != one.size_bytes:
            what = f"it has {info.size:,} bytes, and {one.size_bytes:,} by the table's metadata"
            return Fatal(f"{one.path} is damaged: {what}", FROM_COPY)
    return unreadable(fs, files) if content else None


@contextmanager
def intact(path: str) -> Iterator[None]:
    """Only this file is read in the block. Raises Fatal, which names it, if it is not there, or not as written.

    Errors of the system pass: they are about a disk or a network.
    """
    try:
        yield
    except BackfillError:
        raise
    except FileNotFoundError as exc:
        raise missing(path) from exc
    except OSError as exc:
        if exc.errno is not None:
            raise
        raise damaged(path, exc) from exc
    except Exception as exc:  # readers of damaged bytes raise whatever those lead to: SystemError, MemoryError, …
        raise damaged(path, exc) from exc


def damaged(path: str, why: object) -> Fatal:
    return Fatal(f"{path} is damaged: {' '.join(str(why).split())[:200]}", FROM_COPY)
