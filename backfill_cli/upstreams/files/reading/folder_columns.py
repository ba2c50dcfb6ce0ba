"""Columns whose values are in the names of folders: what they are of, and their values as Arrow columns."""

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

from backfill_cli.decode import guesses, texts
from backfill_cli.errors import BadData, Hint, in_config
from backfill_cli.formats import hive
from backfill_cli.formats.compute import pc
from backfill_cli.formats.listing import File
from backfill_cli.formats.schemas import arrow_type
from backfill_cli.model.schema import Columns, shown

OPTION = "upstream.snapshot.folders"
_GUESSED = ("date", "long")
_ZEROS = r"^-?0[0-9]"


def set_to(ddl: str) -> Hint:
    """The option that has these columns read, as in the config file."""
    return in_config(f"{OPTION} = {json.dumps(ddl, ensure_ascii=False)}")


def guessed(files: Iterable[File], known: Columns | None = None) -> str:
    """The columns in the folders of these files, as Spark DDL, with types that keep every value exactly.

    known: the columns of the files.
    """
    values: dict[str, list[str]] = {}
    for file in files:
        for column, text in hive.columns_of(file.name):
            values.setdefault(column, []).extend([] if text is None else [text])
    kinds = {name: _kind(some) for name, some in values.items()}
    kinds |= {name: shown(known[name]["type"]).upper() for name in values if known and name in known}
    return ", ".join(f"{guesses.spelt(name)} {kind}" for name, kind in kinds.items())


def _kind(found: list[str]) -> str:
    some = pa.array(found, pa.string())
    padded = pc.any(pc.match_substring_regex(some, _ZEROS)).as_py()
    fits = (kind for kind in _GUESSED if found and not padded and texts.are_usual(some, kind))
    exact = (kind for kind in fits if not texts.column(some, kind)[1])
    return {"date": "DATE", "long": "BIGINT"}.get(next(exact, ""), "STRING")


def refuse_unlike(files: Iterable[File], folders: Columns) -> None:
    """Raises BadData for a file whose folders do not have exactly these columns, with values of their types."""
    known = dict[tuple[str, str | None], str]()
    for file in files:
        if hive.beyond_ascii(file.name):
            raise BadData(
                f"{file.path}: a folder's name has an escape beyond ASCII, of a byte or of a character",
                "rename the folder: write the character itself",
            )
        found = hive.columns_of(file.name)
        if sorted(column for column, _ in found) != sorted(folders):
            has = ", ".join(column for column, _ in found) or "no columns"
            raise BadData(
                f"{file.path}: its folders have {has}, not {', '.join(folders)}",
                "move it, or " + set_to(guessed([file]) or "dt DATE") + ", if all files have these",
            )
        for column, text in found:
            if (column, text) not in known:
                kind = folders[column]["type"]
                if not isinstance(kind, str) or kind == "binary":
                    raise BadData(
                        f"{OPTION}: column '{column}': a folder cannot hold {shown(kind)}", set_to("dt DATE")
                    )
                known[column, text] = texts.column(pa.array([text], pa.string()), kind)[1].get(0, "")
            if why := known[column, text]:
                raise BadData(
                    f"{file.path}: column '{column}': {why}",
                    "rename the folder, or declare the column as STRING: "
                    + set_to(f"{guesses.spelt(column)} STRING"),
                )


def added(
    columns: Mapping[str, pa.Array], count: int, name: str, types: Columns, folders: Mapping[str, bool]
) -> tuple[dict[str, pa.Array], dict[int, str]]:
    """The columns of some rows of a file with those of its folders, and the rows of which the file says otherwise.

    name: the file's, as listed. types: of all columns. folders: those in folders, and whether files have them.
    """
    made, faults = dict(columns), dict[int, str]()
    for column, text in hive.columns_of(name):
        kind = types[column]["type"]
        value, _ = texts.column(pa.array([text], pa.string()), str(kind))
        made[column] = pa.nulls(count, arrow_type(kind)) if text is None else pa.repeat(value[0], count)
        if folders[column] and count:
            here = columns[column]
            equal = here.is_null() if text is None else pc.fill_null(pc.equal(here, made[column]), False)
            for index in pc.indices_nonzero(pc.invert(equal)).to_pylist():
                faults.setdefault(index, f"column '{column}' is not {text or 'NULL'}, as the file's folder says")
    return {column: made[column] for column in types}, faults
