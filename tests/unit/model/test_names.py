"""The order of names: by the numbers in them, total, and that of texts where numbers have one width."""

import re
from itertools import pairwise, permutations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backfill_cli.model.names import by_numbers, in_order, unlike_text

HOSTILE = st.text("0123456789abcfFxZ-._+=/٣५", max_size=12)
WORD = re.compile(r"[0-9A-Za-z]+")


@pytest.mark.parametrize(
    "names",
    [
        ("changes-999.json", "changes-1000.json"),
        ("batch9of20.json", "batch10of20.json", "batch100of20.json"),
        ("2026-1-9T10.json", "2026-1-10T10.json", "2026-10-1T1.json"),
        ("2024-01-02.json", "2024-01-10.json", "2024-10-01.json"),
        ("topic+0+0000000999.json", "topic+0+0000001000.json", "topic+0+10000000000.json"),
        ("LOAD9.csv", "LOAD10.csv", "LOAD00000011.csv"),
        ("007", "07", "7", "08"),
        ("0", "00", "1", "01x", "1x"),
        ("-1", "-2", "-10"),
        ("1700000000.12.json", "1700000000.5.json", "1700000001.25.json"),
        ("00000001000000000000009F", "0000000100000000000000A0", "0000000100000000000000FF"),
        ("0009ff", "000a00", "001000", "00ffff"),
        ("9" * 200, "1" + "0" * 200),
        ("a/9.json", "a/10.json", "b/1.json"),
        ("9/b.json", "10/a.json"),
        ("a.json", "a1.json", "ab.json"),
        ("٣.json", "٤.json", "५.json"),
    ],
)
def test_numbers_in_names_count(names: tuple[str, ...]) -> None:
    for some in [names[::-1], *list(permutations(names))[:24]]:
        assert in_order(some) == sorted(names, key=lambda name: (by_numbers(name)[0], names.index(name)))
    assert all(by_numbers(a)[0] <= by_numbers(b)[0] for a, b in pairwise(names))


@given(st.lists(HOSTILE, unique=True, max_size=8))
def test_no_two_names_are_equal_and_any_order_of_them_becomes_one(names: list[str]) -> None:
    assert len({by_numbers(name) for name in names}) == len(names)
    assert in_order(names) == in_order(reversed(names))


@given(HOSTILE, st.lists(st.text("0123456789abcfFxZ", min_size=1, max_size=6), min_size=12, max_size=12))
def test_words_of_one_width_are_ordered_as_texts(name: str, others: list[str]) -> None:
    words = iter(others)
    other = WORD.sub(lambda word: (next(words) * 12)[: len(word[0])], name)
    assert (by_numbers(name) < by_numbers(other)) == (name < other)


@given(HOSTILE, st.integers(0, 10**30), st.integers(0, 10**30), st.integers(0, 3), st.integers(0, 3))
def test_names_that_differ_in_a_number_are_in_the_order_of_numbers(
    before: str, one: int, other: int, zeros: int, more: int
) -> None:
    assume(one != other and not re.search(r"[0-9A-Za-z]\Z|[0-9]\.\Z", before))
    a, b = (f"{before}{'0' * n}{number}.json" for n, number in ((zeros, one), (more, other)))
    assert (by_numbers(a) < by_numbers(b)) == (one < other)


def test_the_first_neighbours_that_texts_would_have_the_other_way_are_found() -> None:
    assert unlike_text(["8", "9", "10", "11"]) == ("9", "10")
    assert unlike_text(["08", "09", "10"]) is None
    assert unlike_text([]) is None
