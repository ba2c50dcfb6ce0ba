"""Whatever an answer holds is as its schema says; the real ones of all tests are checked by `answers_run`."""

import json
from pathlib import Path

import pages
import pytest
from answers_run import closed, validator
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from backfill_cli.model.reports import Origin, Setting
from backfill_cli.view.answers import document
from backfill_cli.view.schemas import ANSWERS, schema

PAGE = Path(__file__).parents[3] / "docs" / "json.md"
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=3)
st.register_type_strategy(Setting, st.builds(Setting, st.text(), JSON, st.sampled_from(Origin), st.text()))


@pytest.mark.parametrize("name", ANSWERS)
@settings(suppress_health_check=[HealthCheck.data_too_large, HealthCheck.too_slow])  # a job has sixty facts
@given(data=st.data())
def test_an_answer_is_as_its_schema_says(name: str, data: st.DataObject) -> None:
    answer = document(data.draw(st.from_type(ANSWERS[name][0])))
    validator(name).validate(json.loads(json.dumps(answer)))


@pytest.mark.parametrize("name", ANSWERS)
def test_a_schema_is_one_and_refuses_what_is_not_the_answer(name: str) -> None:
    Draft202012Validator.check_schema(schema(name))
    assert not validator(name).is_valid({})
    assert not validator(name).is_valid({"schema": 1})


def test_a_closed_schema_allows_no_other_field() -> None:
    told = {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a"]}
    assert Draft202012Validator(told).is_valid({"a": None, "b": 1})
    assert not Draft202012Validator(closed(told)).is_valid({"a": None, "b": 1})


def test_every_code_is_one() -> None:
    """A state in an answer is no text with blanks."""
    enums = [part["enum"] for name in ANSWERS for part in schema(name)["$defs"].values() if "enum" in part]
    codes = {code for enum in enums for code in enum}
    assert {"not_started", "awaiting_live", "no_runner", "dead", "log-store"} <= codes
    assert {code for code in codes if not code.replace("_", "").replace("-", "").isalpha()} == set()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text("utf-8") == pages.answers(), "python scripts/pages.py json > docs/json.md"
