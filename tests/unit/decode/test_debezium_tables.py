"""Which tables' envelopes are read, by the names in `source`."""

import pytest

from backfill_cli.decode.source_table import Known


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
