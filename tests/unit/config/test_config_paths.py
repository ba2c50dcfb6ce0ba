"""A path of a config is one place, whatever folder the command is typed in, and whatever its references hold."""

import os
from pathlib import Path

import pytest
from config_builders import GOOD, Load
from hypothesis import assume, example, given
from hypothesis import strategies as st

from backfill_cli.config import from_stored
from backfill_cli.config.paths import absolute_path, relative_path, valued_path
from backfill_cli.config.secrets import resolve
from backfill_cli.errors import ConfigError
from backfill_cli.model.secret_forms import REFERENCE

BASE = Path("/srv/jobs")
HOME = os.path.expanduser("~")
VALUES = {"ABS": "/mnt/data", "REL": "a/b", "UP": "../x", "DAY": "2026-11-26", "URI": "s3://b/k", "HOME_": "~/d"}
PIECES = ["data", ".", "..", "~", "day-", "*.csv", "é x", *(f"${{env:{name}}}" for name in VALUES)]
TYPED = st.tuples(
    st.sampled_from(["", "", "/", "~/", "s3://bucket/", "file:/"]),
    st.lists(st.tuples(st.sampled_from(PIECES), st.sampled_from(["/", "/", ""])), min_size=1, max_size=4),
).map(lambda drawn: drawn[0] + "".join(piece + sep for piece, sep in drawn[1]))


def place(path: str) -> str:
    """POSIX leaves open what two slashes at the beginning mean; here they mean one."""
    return "/" + os.path.normpath(path).lstrip("/")


def filled(text: str) -> str:
    return REFERENCE.sub(lambda found: VALUES[found[2]], text)


def is_uri(text: str) -> bool:
    return text.startswith(("s3:/", "file:/"))


def meant(typed: str, base: Path) -> str | None:
    """What is opened in the config's folder with variables replaced; None if that would depend on the folder."""
    text = filled(typed)
    if is_uri(text):
        return text
    if typed.startswith("${") and not text.startswith(("/", "~/")):
        return None
    if typed == "~" or (text.startswith("~/") and typed.startswith(("~/", "${"))):
        text = HOME + text[1:]
    return place(os.path.join(base, text))


@given(TYPED)
@example("data/${env:REL}/../x")
@example("./${env:ABS}")
@example("~/${env:DAY}")
def test_a_path_is_relative_to_the_configs_folder_alone(typed: str) -> None:
    stored = absolute_path(typed, BASE)
    assert absolute_path(stored, Path("/elsewhere")) == stored
    value, expected = valued_path(filled(stored)), meant(typed, BASE)
    assert value == expected if value is None or is_uri(value) else place(value) == expected


def test_a_path_with_a_reference_is_stored_as_it_was_before() -> None:
    """A job of an earlier version would be another one, were it not."""
    for text in ("data/${env:DAY}/", "./${env:DAY}//x", "data/../${env:DAY}/./x/"):
        assert absolute_path(text, BASE) == os.path.normpath(f"{BASE}/{text}")


@given(TYPED)
def test_a_place_that_was_typed_here_is_the_same_in_a_config_elsewhere(typed: str) -> None:
    text = os.path.expanduser(filled(typed))
    assume(not is_uri(text) and not typed.startswith("~${"))
    for folder in (Path.cwd(), Path.cwd() / "conf", Path.cwd().parent, BASE):
        written = relative_path(typed, folder, text)
        value = valued_path(filled(absolute_path(written, folder)))
        assert value is not None
        assert place(value) == place(os.path.abspath(text)), written


def test_a_variable_that_a_path_begins_with_holds_an_absolute_one(
    load_text: Load, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a stored config, too: what a relative one means would depend on where `resume` is typed."""
    for value, opened in (("/data", "/data/x"), ("~/d", f"{HOME}/d/x"), ("s3://b", "s3://b/x"), ("d", None)):
        monkeypatch.setenv("PLACE", value)
        stored = load_text(GOOD.replace("warehouse.duckdb", "${env:PLACE}/x"))
        for config in (stored, from_stored(stored.stored())):
            if opened is not None:
                assert resolve(config.sink, "sink").model_dump()["path"] == opened
                continue
            with pytest.raises(ConfigError) as refused:
                resolve(config.sink, "sink")
            said = "is a relative path: give the absolute one; or, below the config's folder: ./${env:PLACE}/x"
            assert f"sink.path: ${{env:PLACE}}/x {said}" in refused.value.message
    below = load_text(GOOD.replace("warehouse.duckdb", "./${env:PLACE}/x"))
    assert resolve(below.sink, "sink").model_dump()["path"] == f"{tmp_path}/d/x"
