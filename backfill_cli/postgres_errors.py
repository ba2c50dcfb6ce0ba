"""What PostgreSQL's errors mean, by SQLSTATE: for the upstream and the sink.

When a server refuses a login, libpq passes on no SQLSTATE: then the text of the error decides.
"""

import re
from enum import Enum, auto

from backfill_cli.errors import shell

PLACE = """
    (SELECT system_identifier FROM pg_catalog.pg_control_system())::text || ' ' || pg_catalog.current_database()
    || ' ' || t.oid::text"""
"""SQL: a text that identifies the table whose oid is `t.oid`, unique across clusters."""

INSTALL = shell("pip install 'backfill-cli[postgres]'")
IN_DATABASE = "correct what the message names, in the database"
"""The hint for an error whose reason is the database's own: a trigger, a function, a setting."""

_PASSING = ("08", "40", "53", "55", "57", "58")
"""Classes of transient errors: connection, rollback, resources, object in use, operator intervention, system."""
_ENDED = ("25P03", "25P04")
"""The server ended a session or a transaction that exceeded one of its timeouts."""

_NO_WAY_IN = re.compile(r"authentication failed|does not exist|no pg_hba\.conf entry|not permitted to log in")
_LOST = re.compile(
    r"connect|server closed|could not (receive|send)|could not translate host|timed? ?out|SSL error", re.I
)
"""What libpq and its clients say of a server that cannot be reached, or went away."""


class ErrorKind(Enum):
    """What an error is about. UNREACHED: no server answered."""

    FORBIDDEN = auto()
    NO_WAY_IN = auto()
    UNREACHED = auto()
    PASSES = auto()
    OTHER = auto()


def classify(state: str, words: str, otherwise: ErrorKind = ErrorKind.UNREACHED) -> ErrorKind:
    """What an error is about. state: the SQLSTATE, empty if there is none. words: the client's full message.

    otherwise: the answer for an error without a state whose text is unknown: clients raise some of their own.
    """
    if state == "42501":
        return ErrorKind.FORBIDDEN
    if state[:2] in ("28", "3D") or (not state and "FATAL" in words and _NO_WAY_IN.search(words)):
        return ErrorKind.NO_WAY_IN
    if not state:
        return ErrorKind.UNREACHED if _LOST.search(words) else otherwise
    return ErrorKind.PASSES if state[:2] in _PASSING or state in _ENDED else ErrorKind.OTHER
