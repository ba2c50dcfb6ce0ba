"""What every section of the config file is, and the names of tables in it."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

TABLE_NAME_AT_MOST = 200
_PATH_PART = re.compile(r"[/\\\x00-\x1f\x7f]|\.\.")


class Section(BaseModel):
    """A TOML table: unknown keys are faults, and errors never contain values."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


def _no_path(name: str) -> str:
    # Names become parts of paths: staged files, log files, {table} of an upstream.
    if _PATH_PART.search(name) or name == "." or len(name) > TABLE_NAME_AT_MOST:
        raise ValueError(
            f"a table's name is at most {TABLE_NAME_AT_MOST} characters, without /, \\, .. or control "
            "characters; it is not a path"
        )
    return name


def _columns_differ(key: list[str]) -> list[str]:
    if len({column.lower() for column in key}) < len(key):
        raise ValueError("names a column more than once")
    return key


TableName = Annotated[str, Field(min_length=1), AfterValidator(_no_path)]
KeyColumns = Annotated[list[Annotated[str, Field(min_length=1)]], AfterValidator(_columns_differ)]
"""No column twice, in any case."""
