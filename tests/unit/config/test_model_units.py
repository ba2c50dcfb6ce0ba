"""What people write is what is meant, and what they read has one form."""

import math
import re
import signal
import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backfill_cli.model.units import (
    BYTES,
    SECONDS,
    duration_option,
    duration_s,
    near_names,
    nearest_first,
    share,
    size_bytes,
    spell_clock,
    spell_count,
    spell_duration,
    spell_exit,
    spell_known,
    spell_moment,
    spell_number,
    spell_rate,
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
    assert math.isclose(read(spell_duration(seconds)), seconds, rel_tol=0.05, abs_tol=0.06)


@given(st.floats(0, 10**8, allow_nan=False))
def test_a_spelled_duration_has_one_form(seconds: float) -> None:
    """What it says is spelled the same again, and no unit is as large as the next one."""
    spelled = spell_duration(seconds)
    assert spell_duration(read(spelled)) == spelled
    terms = {unit: float(number.replace(",", "")) for number, unit in re.findall(r"([\d.,]+) ([a-z]+)", spelled)}
    assert tuple(terms) in {("ms",), ("s",), ("m",), ("m", "s"), ("h",), ("h", "m"), ("d",), ("d", "h")}
    limits = {"ms": 100, "s": 60, "m": 60, "h": 24}
    assert all(terms[unit] < limit for unit, limit in limits.items() if unit in terms)


@given(st.floats(0, 10**12))
def test_a_duration_as_it_is_typed_is_the_one_that_is_shown(seconds: float) -> None:
    assert duration_s(duration_option(seconds)) == read(spell_duration(seconds))


@given(*[st.floats(0, 10**8, allow_nan=False)] * 2)
def test_what_is_more_is_spelled_as_more_or_the_same(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert read(spell_duration(less)) <= read(spell_duration(more))
    assert size_bytes(spell_size(less)) <= size_bytes(spell_size(more))
    assert number(spell_rate(less)) <= number(spell_rate(more))


@given(st.floats(0.1, 10**12))
def test_a_spelled_rate_or_size_is_within_a_tenth(value: float) -> None:
    assert math.isclose(number(spell_rate(value)), value, rel_tol=0.1, abs_tol=0.051)
    assert math.isclose(size_bytes(spell_size(value)), value, rel_tol=0.1, abs_tol=1)


@given(st.decimals(0, 10**12, places=2))
def test_a_number_is_spelled_exactly(value: Decimal) -> None:
    assert Decimal(spell_number(float(value)).replace(",", "")) == value


def read(spelled: str) -> float:
    return duration_s(spelled.replace(",", ""))


def number(spelled: str) -> float:
    return float(spelled.split()[0].replace(",", ""))


def test_what_is_spelled_is_short() -> None:
    spelled = [spell_duration(s) for s in (0, 0.001, 0.42, 9.97, 59.6, 65, 150, 3600, 11100, 90000, 172800)]
    assert spelled == [
        "0 s",
        "1 ms",
        "0.4 s",
        "10 s",
        "1 m",
        "1 m 05 s",
        "2 m 30 s",
        "1 h",
        "3 h 05 m",
        "1 d 1 h",
        "2 d",
    ]
    sizes = [spell_size(s) for s in (0, 812, 1300, 5 * 1024**2, 34 * 1024**3, 1234.5 * 1024**4)]
    assert sizes == ["0 B", "812 B", "1.3 KB", "5.0 MB", "34 GB", "1,234.5 TB"]
    rates = [spell_rate(12_345.6), spell_rate(9.96, "changes"), spell_rate(9), spell_rate(0.003), spell_rate(0)]
    assert rates == ["12,346 rows/s", "10 changes/s", "9 rows/s", "0.01 rows/s", "0 rows/s"]
    assert [spell_number(n) for n in (20_000.0, 0.25, 1_234_567)] == ["20,000", "0.25", "1,234,567"]
    counts = [
        spell_count(n, word) for n, word in ((1, "row"), (1200, "key"), (2, "entry"), (0, "branch"), (2, "epoch"))
    ]
    assert counts == ["1 row", "1,200 keys", "2 entries", "0 branches", "2 epochs"]


def test_a_time_is_local_and_without_its_date_on_the_same_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Vienna")
    time.tzset()
    try:
        midnight = 1763766000000  # 2025-11-22 00:00 there
        assert spell_moment(midnight - 1000) == "2025-11-21 23:59:59 CET"
        assert spell_moment(None) == "N/A"
        assert spell_clock(midnight, midnight + 3_600_000) == "00:00:00"
        assert spell_clock(midnight - 1000, midnight) == "2025-11-21 23:59:59"
    finally:
        monkeypatch.undo()
        time.tzset()


@given(st.lists(st.text("abcDE_", min_size=1), max_size=30, unique=True), st.text("abcDE_", min_size=1))
def test_near_names_are_some_of_the_known_ones_and_the_name_itself_is_the_nearest(
    names: list[str], name: str
) -> None:
    near = near_names(name, names)
    assert len(near) <= 3
    assert set(near) <= set(names)
    assert near_names(name.swapcase(), [*names, name])[0].casefold() == name.casefold()
    assert sorted(nearest_first(name, names)) == sorted(names)
    assert nearest_first(name, names)[: len(near)] == near


def test_a_name_that_is_not_known_is_told_with_what_was_meant_or_with_what_there_is() -> None:
    tables = ["customers", "orders", "order_lines"]
    assert spell_known("Bookingid", ["id", "booking_id"], "columns") == "; did you mean booking_id?"
    assert spell_known("lines", ["public.orders", "public.lines", "a.b"]) == "; did you mean public.lines?"
    assert spell_known("order", tables) == "; did you mean orders or order_lines?"
    assert spell_known("x", tables) == "; tables: customers, orders, order_lines"
    assert spell_known("x", [f"t{n}" for n in range(12)]).endswith(", t9 and 2 more")
    assert spell_known("x", []) == ""
    assert near_names("lake.shop.ordres", [f"lake.shop.{name}" for name in tables])[:1] == ["lake.shop.orders"]
    assert near_names("lake.shop.x", [f"lake.shop.{name}" for name in tables]) == []


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
