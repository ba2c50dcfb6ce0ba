"""While Spark starts, which takes seconds, a command can be ended like at any other time."""

import signal
import time
from pathlib import Path

import pytest
from typed import Place


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_spark_starts_ends_the_command_at_once_and_leaves_nothing(
    tmp_path: Path, number: signal.Signals
) -> None:
    place = Place(tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    never_ready = place.java(f"touch {tmp_path}/java/ran; cat > /dev/null; touch {tmp_path}/java/ended")
    with place.began("start", "job.toml", env={**never_ready, "TMPDIR": str(scratch)}) as runner:
        place.until(lambda job: (tmp_path / "java/ran").exists() and job["limited_by"]["text"] == "starting Spark")
        assert list(scratch.iterdir()) != []
        runner.send_signal(number)
        began_s = time.monotonic()
        assert runner.wait(60) == 128 + number, place.said
        assert time.monotonic() - began_s < 30, "it waited for Java"
    assert "Traceback" not in place.said
    assert place.job()["state"] == "none"
    assert list(scratch.iterdir()) == []
    deadline = time.monotonic() + 20
    while not (tmp_path / "java/ended").exists():
        assert time.monotonic() < deadline, "Java outlives the command"
        time.sleep(0.05)
