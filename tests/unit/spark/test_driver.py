"""How settings reach the driver: in a private file, never in argv."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.spark import driver


def properties(text: str) -> dict[str, str]:
    """What Java's Properties.load reads from a file without comments and continued lines."""
    return dict(_entry(line) for line in text.splitlines())


def _entry(line: str) -> tuple[str, str]:
    units: list[int] = []
    key: list[int] | None = None
    at = 0
    while at < len(line):
        if line[at : at + 2] == "\\u":
            units.append(int(line[at + 2 : at + 6], 16))
            at += 6
        elif line[at] == "\\":
            units.append(ord({"n": "\n", "r": "\r", "t": "\t"}.get(line[at + 1], line[at + 1])))
            at += 2
        elif line[at] in "=: " and key is None:
            key, units = units, []
            at += 1
        else:
            units.append(ord(line[at]))
            at += 1
    assert key is not None
    return _text(key), _text(units)


def _text(units: list[int]) -> str:
    return b"".join(unit.to_bytes(2, "big") for unit in units).decode("utf-16-be")


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_settings_survive_the_file_whatever_they_hold(conf: dict[str, str]) -> None:
    before = os.environ.get("PYSPARK_SUBMIT_ARGS")

    with driver._submit_arguments(conf):
        file = Path(os.environ["PYSPARK_SUBMIT_ARGS"].split()[1])
        text = file.read_text("ascii")

    assert properties(text) == conf
    assert not file.exists()
    assert os.environ.get("PYSPARK_SUBMIT_ARGS") == before


def test_secrets_stay_out_of_argv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--verbose pyspark-shell")

    with driver._submit_arguments({"spark.hadoop.fs.s3a.secret.key": "canary"}):
        arguments = os.environ["PYSPARK_SUBMIT_ARGS"]
        file = Path(arguments.split()[1])
        mode = stat.S_IMODE(file.stat().st_mode)
        folder = stat.S_IMODE(file.parent.stat().st_mode)

    assert "canary" not in arguments
    assert arguments.endswith("--verbose pyspark-shell")
    assert (mode & 0o077, folder & 0o077) == (0, 0)
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--verbose pyspark-shell"
