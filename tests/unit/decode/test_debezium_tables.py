"""Which tables' envelopes are read, by the names in `source`."""

from dataclasses import replace

import pytest

from backfill_cli.contracts.decoder import Asked
from backfill_cli.decode.source_table import Known, known_of, remembered


@pytest.mark.parametrize(
    ("pattern", "reads", "skips"),
    [
        ("public.order_items", ("app.public.order_items", "public.order_items"), ("app.public.orderXitems",)),
        ("public.order%", ("app.public.order%",), ("app.public.orders",)),
        ("public.order?", ("app.public.order?",), ("app.public.orders", "app.public.order")),
        (
            "public.order_*",
            ("app.public.order_1", "app.public.order_"),
            ("app.public.orders", "app.public.order_1.x"),
        ),
    ],
)
def test_case_63_no_character_but_the_star_stands_for_others(
    pattern: str, reads: tuple[str, ...], skips: tuple[str, ...]
) -> None:
    known = Known(tables=(pattern,))
    assert [known.reads(name) for name in (*reads, *skips)] == [True] * len(reads) + [False] * len(skips)


def test_case_64_tables_of_one_name_in_two_schemas_are_two() -> None:
    named = Known(tables=("public.orders",))
    assert named.reads("app.public.orders")
    assert not named.reads("app.archive.orders")
    assert not named.reads("app.notpublic.orders")
    begun = Known(source="app.public.orders", named=("orders", "orders"))
    assert not begun.is_other("app.public.orders")
    assert begun.is_other("app.archive.orders")


SHARED = Asked("topic 'shop'", "shop", "people", ("id",), None, {"tables": ("people",)}, "value", shared=True)


def test_of_tables_that_share_a_topic_a_table_is_the_one_that_was_seen_and_no_other_of_its_name() -> None:
    known = known_of(SHARED, remembered(SHARED, ["shop.public.people", "shop.public.orders"]))
    assert known.source == "shop.public.people"
    assert known.reads("shop.public.people")
    for of in ("other.public.people", "x.shop.public.people", "people", "shop.public.orders"):
        assert not known.reads(of)


def test_a_record_that_names_no_table_is_of_none_of_those_that_share_a_topic() -> None:
    for named in (["shop.people"], []):
        known = known_of(SHARED, remembered(SHARED, named))
        assert known.is_other("")
        assert known.fault("") == "its source names no table, in a topic of several tables"


@pytest.mark.parametrize(
    ("table", "seen", "expected"),
    [
        ("people", ["shop.public.orders", "shop.public.lines"], "shop.public.people"),
        ("public.people", ["shop.public.orders"], "shop.public.people"),
        ("people", ["orders"], "people"),
        ("audit.people", ["shop.public.orders"], "audit.people"),
        ("people", ["shop.public.orders", "shop.audit.orders"], "people"),
        ("people", [], "people"),
    ],
)
def test_a_table_that_no_record_has_shown_is_expected_beside_the_others_and_no_other_one_is_guessed(
    table: str, seen: list[str], expected: str
) -> None:
    asked = replace(SHARED, table=table, options={"tables": (table,)})
    known = known_of(asked, remembered(asked, seen))
    assert known.reads(expected)
    assert not known.is_other(expected)
    another = f"elsewhere.{table}"
    assert known.reads(another), "it may be the one that is meant: not skipped"
    assert known.is_other(another)
    assert f'start over with name = "{another}" in [[tables]]' in known.fault(another)
    assert not known.reads("shop.public.orders")


def test_a_job_that_an_older_version_began_with_no_record_of_a_table_reads_what_it_read() -> None:
    known = known_of(SHARED, {"source": None})
    assert known.reads("a.people")
    assert known.reads("b.people")
    assert not known.is_other("b.people")
