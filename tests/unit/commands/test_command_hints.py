"""A hint's commands find the job: they carry the `--catalog` that was typed."""

import pytest
from command_builders import Run

from backfill_cli.catalog import Catalog
from backfill_cli.view.hints import in_catalog


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        ("backfill status orders", "backfill status orders --catalog c"),
        (
            "look: backfill status a; or backfill drop a --confirm a (x)",
            "look: backfill status a --catalog c; or backfill drop a --confirm a --catalog c (x)",
        ),
        (
            "backfill throttle --rate 500, or --rate none",
            "backfill throttle --rate 500 --catalog c, or --rate none",
        ),
        ("backfill status a --catalog b", "backfill status a --catalog b"),
        ("backfill init other.toml", "backfill init other.toml"),
        ("backfill start --config j.toml or nothing", "backfill start --config j.toml --catalog c or nothing"),
        (
            "backfill drop a --sink '/my jobs (old), or/j.toml' --confirm a; or wait",
            "backfill drop a --sink '/my jobs (old), or/j.toml' --confirm a --catalog c; or wait",
        ),
        ("a backfill of rows", "a backfill of rows"),
    ],
)
def test_commands_of_a_hint_carry_the_catalog(hint: str, told: str) -> None:
    assert in_catalog(hint, "c") == told


def test_a_catalog_that_was_typed_is_in_the_hint_and_one_of_the_environment_is_not(
    run: Run, catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    typed = run("pause", "none", "--catalog", str(catalog.path))
    assert f"Try: backfill status orders --catalog {catalog.path}\n" in typed.stderr
    monkeypatch.setenv("BACKFILL_CATALOG", str(catalog.path))
    assert "Try: backfill status orders\n" in run("pause", "none").stderr
