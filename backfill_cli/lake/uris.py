"""Refuses secrets in a table's URI, which is shown in errors and stored beside the tables."""

import re
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from backfill_cli.contracts.secrets import STORED

_SECRETS = re.compile(r"sig|secret|token|key|pass|credential", re.IGNORECASE)
NO_SECRETS = (
    "a URI with a secret in it would be shown and stored: remove the part {part}, and give the secret to the "
    'file system, in spark.conf by "${{env:NAME}}" and in this process\'s environment'
)


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
