"""Messages of pgoutput, taken apart."""

from datetime import UTC, datetime

import pgoutput_messages as made
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.upstreams.postgres import pgoutput as log


def test_a_begin_says_where_and_when_its_transaction_commits() -> None:
    at = datetime(2026, 11, 22, 23, 59, 59, 999_999, tzinfo=UTC)
    since_2000_us = int((at - datetime(2000, 1, 1, tzinfo=UTC)).total_seconds() * 1e6)
    told = log.begin(made.begin(0x16_B374_D848, since_2000_us, 4_294_967_295))
    assert told == log.Begin(0x16_B374_D848, int(at.timestamp() * 1000), 4_294_967_295)


def test_a_begin_of_before_2000_is_read() -> None:
    assert log.begin(made.begin(1, -1, 3)).ms == 946_684_799_999


def test_a_commit_says_where_its_record_begins_and_ends() -> None:
    message = made.commit(0x16_B374_D848, 0xFFFF_FFFF_FFFF_FFF0, 0)
    assert (log.commit_lsn(message), log.end_lsn(message)) == (0x16_B374_D848, 0xFFFF_FFFF_FFFF_FFF0)


def test_a_relation_says_its_columns_and_which_of_them_old_rows_have() -> None:
    message = made.relation(
        0xFFFF_FFFE, "d", [(1, "id", 20, -1), (0, "größe", 1700, 786_438), (1, "", 4_000_000_000, -1)]
    )
    assert log.relation(message) == log.Relation(
        0xFFFF_FFFE, (("id", 20, -1), ("größe", 1700, 786_438), ("", 4_000_000_000, -1)), frozenset({"id", ""})
    )


def test_a_relation_may_have_no_columns() -> None:
    assert log.relation(made.relation(1, "n", [])) == log.Relation(1, (), frozenset())


def test_a_relation_says_whether_old_rows_are_whole() -> None:
    full, by_key = (log.relation(made.relation(1, identity, [(1, "id", 20, -1)])) for identity in "fd")
    assert (full.full, by_key.full) == (True, False)
    assert full.identity == by_key.identity


def test_a_truncate_names_its_tables() -> None:
    assert log.truncated(made.truncate(1, 0xFFFF_FFFE)) == [b"\0\0\0\1", b"\xff\xff\xff\xfe"]


VALUES = st.lists(st.none() | st.text() | st.just(made.UNSENT) | st.just("x" * 70_000), max_size=300)


@given(VALUES, st.binary(max_size=20), st.binary(max_size=20))
def test_a_row_is_its_values_wherever_it_begins(
    values: list[str | made.Unsent | None], before: bytes, after: bytes
) -> None:
    data = made.tuple_data(values)
    row, end, gaps = log.row_at(before + data + after, len(before))
    assert row == [
        log.UNSENT if v is made.UNSENT else v and v.encode() if v else b"" if v == "" else None for v in values
    ]
    assert end == len(before) + len(data)
    assert gaps == (made.UNSENT in values)


def test_a_value_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="no value of kind 98"):
        log.row_at(b"\0\1b\0\0\0\1x", 0)
