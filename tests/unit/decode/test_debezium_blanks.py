"""What an old row of Debezium has in a column that is not in the log, and which logs can prove a late key."""

from typing import Any

import pytest

from backfill_cli.decode.order import blanks, can_be_late

PLACED = {"txId": 7, "lsn": 1}


@pytest.mark.parametrize(
    ("told", "found"),
    [
        ({"type": "string", "optional": True}, set()),
        ({"type": "string", "optional": True, "default": "new"}, {"new"}),
        ({"type": "string", "optional": False, "default": None}, {""}),
        ({"type": "bytes", "optional": False}, {""}),
        ({"type": "int32", "optional": False}, {"0"}),
        ({"type": "int32", "optional": False, "default": 7}, {"7"}),
        ({"type": "boolean", "optional": False, "default": False}, {"false"}),
        (
            {"type": "int32", "optional": False, "name": "io.debezium.time.Date"},
            None,
        ),  # its zero may be another one
        ({"type": "string"}, None),
    ],
)
def test_a_field_says_what_stands_for_a_value_that_is_not_sent(
    told: dict[str, Any], found: set[str] | None
) -> None:
    assert blanks(told) == found


@pytest.mark.parametrize(
    ("envelopes", "late"),
    [
        ([], True),
        ([{"op": "r", "source": {"txId": None, "lsn": None}}], True),  # an incremental snapshot is not placed
        ([{"op": "c", "source": PLACED}], True),
        ([{"op": "c", "source": {"txId": "a", "scn": "12"}}], True),
        ([{"op": "c", "source": {**PLACED, "lsn": None}}], False),
        ([{"op": "u", "source": {**PLACED, "txId": None}}, {"op": "r", "source": {}}], False),
        ([{"op": "d", "source": None}], False),
    ],
)
def test_only_a_log_whose_changes_are_not_placed_proves_nothing(
    envelopes: list[dict[str, Any]], late: bool
) -> None:
    assert can_be_late(envelopes) is late
