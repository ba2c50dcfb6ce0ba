"""Records of change logs that change no row of the job: what kinds there are, and how many it has skipped."""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum


class Skipped(StrEnum):
    """The kinds, as catalog, JSON and metrics name them."""

    HEARTBEAT = "heartbeats"
    TRANSACTION = "transaction_marks"
    SCHEMA = "schema_changes"
    MESSAGE = "log_messages"
    TOMBSTONE = "tombstones"
    STATEMENT = "statements"
    MARK = "marks"
    OTHER_TABLE = "records_of_other_tables"
    UNREAD = "changes_of_unread_rows"


def added(before: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    """The counts of both together."""
    return dict(Counter(before) + Counter(more)) if more else before
