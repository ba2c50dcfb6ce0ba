"""The text of arrays."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.upstreams.postgres.values import NotOneDimensional, elements

ITEMS = (
    st.sampled_from([None, "NULL", "null"])
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    | st.text('{}",;\\ \n')
)


def written(items: list[str | None], delimiter: str) -> str:
    """As array_out's documentation says: quoted when empty, NULL in any case, or with a special character."""

    def one(item: str | None) -> str:
        if item is None:
            return "NULL"
        if item and item.upper() != "NULL" and not set(item) & set('{}"\\ \t\n\r\v\f' + delimiter):
            return item
        return '"' + item.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return "{" + delimiter.join(map(one, items)) + "}"


@given(st.lists(ITEMS), st.sampled_from(",;"))
def test_each_element_is_what_was_written(items: list[str | None], delimiter: str) -> None:
    assert elements(written(items, delimiter), delimiter) == items


@pytest.mark.parametrize(
    "text", ["{{1,2},{3,4}}", '{{"a","b c"}}', "{{{1}}}", "[2:3]={1,2}", "[0:0]={1}", "[1:1][2:2]={{1}}"]
)
def test_other_dimensions_than_one_from_1_on_are_no_list(text: str) -> None:
    with pytest.raises(NotOneDimensional):
        elements(text)
