"""A tree of options becomes TOML that is read back as the same tree."""

import tomli
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.config.toml import spell_toml

KEYS = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=8)
PLAIN = st.text(st.characters(exclude_categories=("Cs",))) | st.booleans() | st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    PLAIN | FLOATS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
SECTIONS = st.dictionaries(KEYS, VALUES, max_size=4)
TREES = st.dictionaries(KEYS, SECTIONS | st.lists(SECTIONS, min_size=1, max_size=3) | VALUES, max_size=5)


@given(TREES)
def test_what_is_spelled_is_read_back(tree: dict[str, object]) -> None:
    assert tomli.loads(spell_toml(tree)) == tree


def test_it_looks_as_people_write_it() -> None:
    tree = {
        "job": {"name": "orders"},
        "upstream": {"snapshot": {"path": "a b", "format": None}},
        "tables": [{"name": "orders", "key": ["id"]}],
        "spark": {"conf": {"spark.driver.memory": "600m"}},
    }
    assert spell_toml(tree) == (
        '[job]\nname = "orders"\n\n[upstream]\nsnapshot = { path = "a b" }\n\n'
        '[[tables]]\nname = "orders"\nkey = ["id"]\n\n[spark]\nconf = { "spark.driver.memory" = "600m" }\n'
    )
