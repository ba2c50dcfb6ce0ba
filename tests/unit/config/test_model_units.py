"""Durations and sizes: what people write is what is meant."""

import math
import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.units import (
    BYTES,
    SECONDS,
    duration_s,
    share,
    size_bytes,
    spell_duration,
    spell_exit,
    spell_share,
    spell_size,
)


@given(st.integers(0, 10**6), st.sampled_from(sorted(SECONDS)))
def test_a_duration_is_its_number_times_its_unit(number: int, unit: str) -> None:
    assert math.isclose(duration_s(f"{number}{unit}"), number * SECONDS[unit])
    assert math.isclose(duration_s(f" {number} {unit.upper()} "), number * SECONDS[unit])


@given(st.floats(0, 10**9, allow_nan=False))
def test_a_plain_number_is_seconds(number: float) -> None:
    assert duration_s(number) == number


@given(st.integers(0, 999), st.integers(0, 59), st.integers(0, 59))
def test_units_add_up(hours: int, minutes: int, seconds: int) -> None:
    assert duration_s(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize(
    "bad", ["", "s", "1x", "1s2", "-1s", "1 2s", "1s,", -1, math.nan, math.inf, True, None, []]
)
def test_anything_else_is_no_duration(bad: object) -> None:
    with pytest.raises(ValueError, match="a duration must be"):
        duration_s(bad)


@given(st.integers(0, 10**6), st.sampled_from(["k", "m", "g", "t"]), st.sampled_from(["", "b", "ib", "B", "iB"]))
def test_a_size_is_its_number_times_its_unit(number: int, unit: str, rest: str) -> None:
    assert size_bytes(f"{number}{unit}{rest}") == number * BYTES[unit]
    assert size_bytes(f"{number} {unit.upper()}{rest}") == number * BYTES[unit]


@pytest.mark.parametrize("bad", ["", "g", "1x", "-1g", "1 2g", "1gg", -1, True, 1.5, None])
def test_anything_else_is_no_size(bad: object) -> None:
    with pytest.raises(ValueError, match="a size must be"):
        size_bytes(bad)


@given(st.floats(0, 10**8, allow_nan=False))
def test_a_spelled_duration_reads_back_within_a_twentieth(seconds: float) -> None:
    assert math.isclose(duration_s(spell_duration(seconds).replace(" ", "")), seconds, rel_tol=0.05, abs_tol=0.06)


def test_spelled_durations_and_sizes_are_short() -> None:
    spelled = [spell_duration(s) for s in (0, 0.001, 0.42, 9.97, 59.6, 61, 3600, 3660, 90000, 172800)]
    assert spelled == ["0s", "1ms", "0.4s", "10s", "1m", "1m 1s", "1h", "1h 1m", "1d 1h", "2d"]
    assert [spell_size(s) for s in (0, 812, 1300, 5 * 1024**2, 34 * 1024**3)] == [
        "0 B",
        "812 B",
        "1.3 KB",
        "5.0 MB",
        "34 GB",
    ]


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1%", 0.01), ("0.1%", 0.001), ("0.01", 0.01), (" 100 % ", 1.0), (".5", 0.5), ("33%", 0.33)],
)
def test_a_share_is_of_a_hundred_or_less_than_one(text: str, meant: float) -> None:
    assert math.isclose(share(text), meant)


@pytest.mark.parametrize("bad", ["", "%", "0", "0%", "0.0", "100.1%", "1", "5", "-1%", "1e-3", "nan%", "one"])
def test_anything_else_is_no_share(bad: str) -> None:
    with pytest.raises(ValueError, match="share"):
        share(bad)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exit code 0"),
        (3, "exit code 3"),
        (-9, "signal 9 (SIGKILL)"),
        (-signal.SIGRTMIN - 1, f"signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_how_a_process_ended_names_the_signal(code: int, said: str) -> None:
    assert spell_exit(code) == said


def test_a_spelled_share_is_what_was_typed() -> None:
    assert [spell_share(share(text)) for text in ("1%", "0.1%", "0.01", "100%")] == ["1%", "0.1%", "1%", "100%"]
