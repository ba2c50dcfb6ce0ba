"""Parts in their order, and no deeper than it must be."""

from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.balanced import balanced


@given(st.lists(st.text("abc", max_size=3), min_size=1, max_size=2000))
def test_all_parts_are_joined_in_their_order_and_by_halves(parts: list[str]) -> None:
    text, depth = balanced(
        lambda one, two: (one[0] + two[0], max(one[1], two[1]) + 1), [(part, 0) for part in parts]
    )
    assert text == "".join(parts)
    assert depth == (len(parts) - 1).bit_length()
