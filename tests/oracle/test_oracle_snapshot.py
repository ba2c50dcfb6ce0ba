"""Snapshots of Parquet, JSON lines and CSV arrive exactly or are refused by name, by every route.

An input is one generated value or shape: a file of one value for JSON, CSV and single Parquet types, a file of
lines or of pieces, and each generated column of a Parquet file of all types. Those with rows share jobs of up to
`Route.together` files; those that must or may be refused run alone, of each kind and reason in turn, as many as
`Route.refusals` allows. Only what ran is counted.
"""

import os
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import pytest

from oracle import csv_inputs, json_inputs, parquet_examples, parquet_inputs, routes, snapshot_routes, typed
from oracle.inputs import Drawn, generated, written
from oracle.judge import judge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

assert snapshot_routes

FORMS = {"parquet, all types": "Parquet", "parquet": "Parquet", "json": "JSON lines", "csv": "CSV"}
CASES = [(form, route.name) for form in FORMS for route in routes.of(form)]


@cache
def drawn(form: str) -> list[Drawn]:
    match form:
        case "json":
            made = [*generated(json_inputs.cells(), 100), *generated(json_inputs.files(), 22)]
            return [*written(json_inputs.EXAMPLES), *made]
        case "csv":
            made = [*generated(csv_inputs.cells(), 100), *generated(csv_inputs.files(), 28)]
            return [*written(csv_inputs.EXAMPLES), *made]
        case "parquet":
            return [*written(parquet_examples.EXAMPLES), *generated(parquet_inputs.files(), 50)]
    return [*written(parquet_examples.WIDE_EXAMPLES), *generated(parquet_inputs.wide(), 11)]


@pytest.mark.parametrize(("form", "route"), CASES)
def test_a_snapshot_is_exact_or_refused(
    form: str, route: str, spark: "SparkSession", judged: Callable[[int], None]
) -> None:
    found = judge(routes.ROUTES[route], drawn(form), spark)
    typed.note(form, route, found)
    judged(found.inputs)
    assert not found.findings, "\n\n".join(map(str, found.findings))


def test_the_page_of_types_is_what_was_measured() -> None:
    if not set(CASES) <= set(typed.MEASURED):
        missing = "not all routes were measured in this run"
        pytest.fail(missing) if os.environ.get("CI") == "true" else pytest.skip(missing)
    titles = dict.fromkeys(FORMS.values())
    tables = [typed.table(title, [form for form, of in FORMS.items() if of == title]) for title in titles]
    typed.checked("snapshot", "\n".join(tables))
