"""How a column's type is shown."""

from backfill_cli.model.schema import field, shown_column


def test_a_meaning_that_the_sink_keeps_is_its_type_there_and_another_one_is_that_of_the_upstream() -> None:
    told = field("id", "string", {"logical": "uuid"})
    assert shown_column(told, {"uuid", "json"}) == "uuid"
    assert shown_column(told, ()) == "string (upstream uuid)"
    assert shown_column(field("id", "string"), {"uuid"}) == "string"
    assert shown_column(field("id", "long"), ()) == "bigint"
