"""`[[guards]]`: each kind with its options, limits in their units, and systems that can be asked."""

from pathlib import Path

import pytest
from config_builders import GOOD, Load

from backfill_cli.errors import ConfigError
from backfill_cli.model.guard import Level, Window


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ('kind = "load"', 'guards[0]: kind "load" needs limit'),
        ('kind = "load"\nlimit = 1\njob = "x"', 'guards[0]: kind "load" has no job'),
        ('kind = "load"\nlimit = "30s"', "guards[0]: limit: must be a number, 0 or more"),
        ('kind = "load"\nlimit = true', "guards[0].limit: must be a number, a duration or a size"),
        ('kind = "free-disk"\nlimit = "much"', "guards[0]: limit: a size must be in bytes"),
        ('kind = "lag"\njob = "x"\nlimit = "soon"', "guards[0]: limit: a duration must be in seconds"),
        ('kind = "window"\nfrom = "22:00"', 'guards[0]: kind "window" needs to'),
        ('kind = "window"\nfrom = "22:00"\nto = "24:00"', "guards[0]: from and to must be times of the day"),
        ('kind = "window"\nfrom = "22:00"\nto = "22:00"', "guards[0]: from and to must differ"),
        ('kind = "sql"\nlimit = 1\nquery = "SELECT 1"', "guards[0]: this upstream answers no SQL for guards"),
        ('kind = "sql"\non = "sink"\nlimit = 1\nquery = "SELECT 1"', "guards[0]: this sink answers no SQL"),
        ('kind = "sessions"\nlimit = 1', "guards[0]: this upstream cannot tell its sessions"),
        ('kind = "load"\nlimit = 1\nlift = 0', "guards[0].lift: must be greater than 0"),
    ],
)
def test_what_is_wrong_is_a_fault_before_anything_runs(load_text: Load, options: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(f'{GOOD}[[guards]]\nname = "g"\n{options}\n')
    assert fault in caught.value.faults[0]


def test_two_guards_have_two_names(load_text: Load) -> None:
    one = '[[guards]]\nname = "g"\nkind = "load"\nlimit = 1\n'
    with pytest.raises(ConfigError, match="two guards have one name"):
        load_text(GOOD + one + one)


def test_each_kind_has_its_unit_and_a_path_is_of_the_configs_folder(load_text: Load) -> None:
    config = load_text(
        GOOD
        + """[[guards]]
name = "disk"
kind = "free-disk"
path = "here"
limit = "1GB"
[[guards]]
name = "other"
kind = "lag"
job = "x"
limit = "1m"
rate = 500
[[guards]]
name = "night"
kind = "window"
from = "22:00"
to = "06:30"
"""
    )
    disk, other, night = config.guards
    assert disk.path == str(Path("here").absolute())
    assert disk.guard.rule.judged(1 << 29).said == "free disk 512 MB, below 1.0 GB"
    assert (other.guard.rate, other.guard.rule.judged(61).level) == (500, Level.OVER)
    assert night.guard.rule == Window(22 * 60, 6 * 60 + 30)
