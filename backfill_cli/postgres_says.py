"""What PostgreSQL's errors mean, by their SQLSTATE: for the upstream and for the sink.

A server that lets nobody in says so without one that libpq hands on: then its words tell.
"""

import re
from enum import Enum, auto

INSTALL = "pip install 'backfill-cli[postgres]'"

_PASSING = ("08", "40", "53", "55", "57", "58")
"""Classes that pass: connection, rollback, resources, object in use, operator intervention, system."""

_NO_WAY_IN = re.compile(r"authentication failed|does not exist|no pg_hba\.conf entry|not permitted to log in")


class Said(Enum):
    """What an error is about. UNREACHED: no server answered."""

    FORBIDDEN = auto()
    NO_WAY_IN = auto()
    UNREACHED = auto()
    PASSES = auto()
    OTHER = auto()


def said(state: str, words: str) -> Said:
    """state: the SQLSTATE, empty where none was told. words: all that the client said."""
    if state == "42501":
        return Said.FORBIDDEN
    if state[:2] in ("28", "3D") or (not state and "FATAL" in words and _NO_WAY_IN.search(words)):
        return Said.NO_WAY_IN
    if not state:
        return Said.UNREACHED
    return Said.PASSES if state[:2] in _PASSING else Said.OTHER
