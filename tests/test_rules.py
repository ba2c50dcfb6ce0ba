"""The rules that `scripts/mutate` takes out: each is where it says, and the tests that guard it are there."""

import ast
import tomllib
from pathlib import Path

import pytest
from rules import Misplaced, Rule, without

ROOT = Path(__file__).parent.parent
RULES: list[Rule] = tomllib.loads((ROOT / "tests" / "rules.toml").read_text("utf-8"))["rule"]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["name"])
def test_a_rule_is_where_it_says_and_can_be_taken_out(rule: Rule) -> None:
    path, text = without(rule, ROOT)
    taken_out = ast.parse(text)
    if "text" in rule:
        assert ast.dump(taken_out) != ast.dump(ast.parse(path.read_text("utf-8")))
    else:  # nothing else of the module is another: to compare all of it takes ten times as long
        assert ast.dump(ast.parse(rule["old"])) != ast.dump(ast.parse(rule["new"] or "pass"))
    assert all((ROOT / path).exists() for path in rule["tests"])


def test_each_rule_has_a_name_of_its_own() -> None:
    assert len({rule["name"] for rule in RULES}) == len(RULES)


def rule(at: str, old: str, new: str) -> Rule:
    return {"name": "a rule", "at": at, "old": old, "new": new, "tests": []}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "backfill_cli" / "deep").mkdir(parents=True)
    code = "class A:\n  def f(self, x):\n    if (x\n        > 1):  # why\n      go()\n    return x"
    (tmp_path / "backfill_cli" / "deep" / "code.py").write_text(code)
    return tmp_path


def test_a_rule_is_found_whatever_the_layout_and_its_file(tree: Path) -> None:
    _, text = without(rule("code.A.f", "x > 1", "False"), tree)
    assert "if ((False)):  # why\n      go()" in text
    _, text = without(rule("deep.code.A.f", "if x > 1:\n    go()", ""), tree)
    assert "self, x):\n    pass\n    return" in text


@pytest.mark.parametrize(("at", "old"), [("code.A.f", "x < 1"), ("code.A.g", "x > 1"), ("code.A.f", "x")])
def test_a_rule_that_is_not_there_once_is_told(tree: Path, at: str, old: str) -> None:
    with pytest.raises(Misplaced, match="a rule: "):
        without(rule(at, old, "False"), tree)
