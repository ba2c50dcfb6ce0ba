"""The paths in a config: relative to its folder, absolute before anything is stored, their references kept."""

import os
import re
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel

from backfill_cli.config.marks import marks_along
from backfill_cli.contracts.options import FilePath

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


def is_path(model: type[BaseModel], path: Sequence[str | int], text: str) -> bool:
    """Whether the mark of an option, or of the table of free keys around it, says that its value is a path."""
    around: FilePath | None = None
    mark: FilePath | None = None
    for name, marks in marks_along(model, path):
        around = None if mark is None or name not in mark.keys else mark
        mark = next((one for one in marks if isinstance(one, FilePath)), None)
    told = around or (mark if mark is not None and not mark.keys else None)
    return told is not None and text not in told.words and (not told.names or "/" in text)


def absolute_path(text: str, base: Path) -> str:
    """The path, relative to `base` if it is relative.

    A URI stays as it is, and so does what begins with a reference, whose value is absolute (`valued_path`).
    """
    before, reference, after = text.partition("${")
    if _URI.match(text) or (reference and not before):
        return text
    if ".." not in after.split("/"):
        return os.path.normpath(base / os.path.expanduser(text))
    folder, begin = os.path.split(before)  # what `..` leads to depends on the reference's value
    return os.path.join(os.path.normpath(base / os.path.expanduser(folder)), begin) + reference + after


def absolute_reference(found: re.Match[str], base: Path) -> str:
    """A reference, that to a file made absolute. found: a match of REFERENCE."""
    return f"${{file:{absolute_path(found[2], base)}}}" if found[1] == "file" and found[2] else found[0]


def valued_path(text: str) -> str | None:
    """A path whose references have their values; None if it is relative, although a config's are absolute."""
    text = text if _URI.match(text) else os.path.expanduser(text)
    return text if _URI.match(text) or os.path.isabs(text) else None


def relative_path(text: str, folder: Path, value: str) -> str:
    """A path that was typed in the current folder, as a config in `folder` has it. value: with its references'."""
    before, reference, after = text.partition("${")
    if reference and not before:
        if valued_path(value) is not None:
            return text
        before = "./"
    if not reference:
        before = os.path.expanduser(text)
    if os.path.isabs(os.path.expanduser(before)) or folder == Path.cwd():
        return before + reference + after
    if not reference:
        return _below(os.path.relpath(before, folder)) + "/" * text.endswith("/")
    at, begin = os.path.split(before)
    return os.path.join(_below(os.path.relpath(at or ".", folder)), begin) + reference + after


def _below(path: str) -> str:
    """A relative path, also where its first folder is named `~`."""
    return f"./{path}" if path.startswith("~") else path
