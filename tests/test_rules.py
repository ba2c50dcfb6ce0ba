"""The rules that `scripts/mutate` takes out: each is where it says, and the tests that guard it are there."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
RULES = tomllib.loads((ROOT / "tests" / "rules.toml").read_text("utf-8"))["rule"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["name"])
def test_a_rule_is_where_its_file_says(rule: dict[str, str]) -> None:
    assert (ROOT / rule["file"]).read_text("utf-8").count(rule["old"]) == 1
    assert all((ROOT / path).exists() for path in rule["tests"])


def test_each_rule_has_a_name_of_its_own() -> None:
    assert len({rule["name"] for rule in RULES}) == len(RULES)
