"""`[hooks]`: known events, a command that can be run, no secret; the rest of the job stays as it is."""

import json
from pathlib import Path

import pytest
from config_builders import GOOD, Load

from backfill_cli.config import load, stored_hooks
from backfill_cli.errors import ConfigError

EVENTS = (
    "'caught-up', 'deadline-at-risk', 'done', 'failed', 'lagging', 'log-applied', 'low-headroom', 'paused', "
    "'quarantined', 'resumed', 'set-aside', 'snapshot-read' or 'stopped'"
)


@pytest.mark.parametrize(
    ("hooks", "fault"),
    [
        ('on = ["finished"]\ncommand = ["true"]', f"hooks.on[0]: must be {EVENTS}"),
        ('on = ["failed"]', "hooks: give both on and command"),
        ('command = ["true"]', "hooks: give both on and command"),
        ('on = ["failed"]\ncommand = "true"', "hooks.command: "),
        (
            'on = ["failed"]\ncommand = ["no-such-program-here"]',
            "hooks.command[0]: no-such-program-here: this program does not exist",
        ),
        ('on = ["failed"]\ncommand = ["./plain.txt"]', "plain.txt: not executable: chmod +x"),
        ('on = ["failed"]\ncommand = ["true", "--token=abc"]', "hooks.command[1]: this option is stored in"),
        ('on = ["failed"]\ncommand = ["true", "${env:TOKEN}"]', "hooks.command[1]: references are allowed"),
        ('on = ["failed"]\ncommand = ["true"]\ntimeout = 0', "hooks.timeout: must be greater"),
        ('on = ["lagging"]\ncommand = ["true"]', 'hooks: "lagging" in on and max_lag need each other'),
        (
            'on = ["failed"]\ncommand = ["true"]\nmax_lag = "5m"',
            'hooks: "lagging" in on and max_lag need each other',
        ),
        (
            'on = ["low-headroom"]\ncommand = ["true"]',
            'hooks: "low-headroom" in on and min_headroom need each other',
        ),
        (
            'on = ["failed"]\ncommand = ["true"]\nmin_headroom = "2h"',
            'hooks: "low-headroom" in on and min_headroom need each other',
        ),
        ('on = ["lagging"]\ncommand = ["true"]\nmax_lag = 0', "hooks.max_lag: must be greater"),
    ],
)
def test_what_is_wrong_is_a_fault_before_anything_runs(load_text: Load, hooks: str, fault: str) -> None:
    Path("plain.txt").write_text("")
    with pytest.raises(ConfigError) as caught:
        load_text(f"{GOOD}[hooks]\n{hooks}\n")
    (found,) = caught.value.faults
    assert fault in found
    assert "abc" not in str(caught.value)


def test_a_command_of_this_folder_is_found_from_everywhere(load_text: Load) -> None:
    script = Path("notify.sh")
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    config = load_text(
        GOOD + '[hooks]\non = ["failed", "done"]\ncommand = ["./notify.sh", "a/b"]\ntimeout = "5s"\n'
    )
    assert config.hooks.command == [str(script.absolute()), "a/b"]
    assert stored_hooks(config.stored()) == config.hooks
    assert config.hooks.timeout_s == 5


def test_a_job_of_an_earlier_version_has_none(load_text: Load) -> None:
    assert stored_hooks("{}").on == []
    assert "hooks" not in json.loads(load_text(GOOD).stored())


def test_a_program_that_is_gone_does_not_hold_up_a_job_that_is_there(tmp_path: Path, load_text: Load) -> None:
    script = tmp_path / "notify.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    config = load_text(GOOD + '[hooks]\non = ["failed"]\ncommand = ["./notify.sh"]\n')
    script.unlink()
    assert stored_hooks(config.stored()).command == [str(script)]
    with pytest.raises(ConfigError, match="this program does not exist"):
        load(tmp_path / "job.toml")
