"""What the options of lake tables share: the check of a table's place, moments, and errors about properties."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, ValidationInfo, field_validator

from backfill_cli.contracts import TableSpec
from backfill_cli.contracts.options import STORED
from backfill_cli.errors import START_OVER, ConfigError

REFUSED_PROPERTY = "correct sink.properties in the config, then " + START_OVER
"""A hint: a table keeps the properties with which it was created."""
_SECRETS = re.compile(r"sig|secret|token|key|pass|credential", re.IGNORECASE)
NO_SECRETS = (
    "a URI with a secret in it would be shown and stored: remove the part {part}, and give the secret to the "
    'file system, in spark.conf by "${{env:NAME}}" and in this process\'s environment'
)


class LakeOptions(BaseModel):
    """The options of a connector to lake tables.

    table: a template of a table's place. require_place: raises ValueError for one that is none in its format.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    require_place: ClassVar[Callable[[str], None]]
    type: str
    table: str

    @field_validator("table")
    @classmethod
    def _is_a_place(cls, given: str, info: ValidationInfo) -> str:
        cls.require_place(given)
        return without_secrets(given, info.context)


def require_one_each(options: LakeOptions, tables: Sequence[TableSpec]) -> None:
    """Raises ConfigError for several tables of an upstream that would all have the same place."""
    if len(tables) > 1 and "{table}" not in options.table:
        fault = f"upstream.table: '{options.table}' has no {{table}}, but the job has {len(tables)} tables"
        raise ConfigError("upstream", [fault], 'use {table} in it, for example "lake/{table}"')


def fingerprint(options: LakeOptions) -> Mapping[str, Any]:
    """All options of an upstream. The table itself is identified by its id."""
    return options.model_dump(mode="json")


def moment(text: str) -> datetime | None:
    """A timestamp with its time zone; None for any other text."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def without_secrets(told: str, context: Any = None) -> str:
    """The same text. Raises ValueError, without it, for a URI with a password or a query that names a secret.

    context: of the validation; a stored config is accepted, so that its job can be continued or dropped.
    """
    if "://" not in told or context == STORED:
        return told
    found = urlsplit(told)
    if found.password is not None:
        raise ValueError(NO_SECRETS.format(part="before the @"))
    named = [name for name, _ in parse_qsl(found.query, keep_blank_values=True) if _SECRETS.search(name)]
    if named:
        raise ValueError(NO_SECRETS.format(part=f"{named[0]}=…"))
    return told


def blamed(said: str, properties: Mapping[str, str]) -> str:
    """What to add to a table format's message: the configured properties whose value it quotes; empty if none."""
    named = [f'"{name}" = "{value}"' for name, value in properties.items() if _quotes(said, value)]
    return f" (sink.properties has {', '.join(named)})" if named else ""


def _quotes(said: str, value: str) -> bool:
    """In quotes, or after a colon: a bare number or `true` there can be something else, such as a task's."""
    text = re.escape(value)
    if re.search(rf"([\"'`]){text}\1", said):
        return True
    is_word = re.search("[A-Za-z]", value) is not None and value.lower() not in ("true", "false")
    return is_word and re.search(rf": {text}(?![\w-])", said) is not None
