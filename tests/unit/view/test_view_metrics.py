"""Metrics as Prometheus reads them: parsed by its own client, never by ours."""

import json
import re
import socket
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest
from prometheus_client.parser import text_string_to_metric_families
from server_process import free_port
from view_builders import progress, row

from backfill_cli.errors import NoSuchJob, UsageError
from backfill_cli.model.checkpoint import Totals
from backfill_cli.model.committing import Committing
from backfill_cli.model.deadline import Outlook
from backfill_cli.model.headroom import Headroom, Unread
from backfill_cli.model.job import Control, JobState, Phase
from backfill_cli.model.limit import Limit
from backfill_cli.model.position import START
from backfill_cli.model.upstream import SpoolView
from backfill_cli.view.metrics import measured
from backfill_cli.view.model import JobView, job_view

STATES = ["starting", "running", "pausing", "paused", "stopping", "stopped", "failed", "done", "dead"]
TOTALS = Totals(7, 84_200, 1_300, 85_000, rows_inserted=84_200, rows_upserted=700, rows_deleted=100)
SPLITS = {"not started": 5, "consuming": 1, "consumed": 4}
SPOOL = SpoolView("0/2", "0/1", 3, 40, 5_000)


def looked(**changes: object) -> tuple[JobView, Totals]:
    return job_view(row(**changes)), TOTALS


def read(text: str) -> dict[str, float]:
    """`name{state}` → value; every sample is the job's."""
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    assert {sample.labels["backfill_job"] for sample in samples} == {"orders"}
    return {
        sample.name + (sample.labels.get("state") or sample.labels.get("phase", "")): sample.value
        for sample in samples
    }


def in_file(folder: Path, **changes: object) -> dict[str, float]:
    file = folder / "backfill.prom"
    with measured(lambda: looked(**changes), str(file), None):
        pass
    return read(file.read_text())


def test_the_file_has_what_status_says(tmp_path: Path) -> None:
    numbers = {"spool": SPOOL, "held_bytes": 12, "quarantined": {"q": 3}, "splits": SPLITS}
    told = in_file(tmp_path, progress=progress(**numbers))
    expected = {
        "backfill_up": 1,
        "backfill_lag_seconds": 1.2,
        "backfill_pending_upstream_epochs": 14,
        "backfill_snapshot_ratio": pytest.approx(0.421),
        "backfill_snapshot_rows_expected": 200_000,
        "backfill_snapshot_rows_per_second": 18_204.4,
        "backfill_throttle_rows_per_second": 20_000,
        "backfill_paused": 0,
        "backfill_held": 0,
        "backfill_refills_pending": 0,
        "backfill_tables_set_aside": 0,
        "backfill_converging": 0,
        "backfill_not_converging": 0,
        **{f"backfill_splits{state}": number for state, number in SPLITS.items()},
        **{f"backfill_phase{one}": float(one == "snapshot") for one in ("snapshot", "log-store", "upstream")},
        "backfill_epoch_timestamp_seconds": 1_763_692_800.123,
        "backfill_upstream_log_held_bytes": 12,
        "backfill_quarantined_rows": 3,
        "backfill_spool_bytes": 5_000,
        "backfill_spool_changes": 40,
        "backfill_epochs_total": 7,
        "backfill_snapshot_rows_read_total": 84_200,
        "backfill_changes_read_total": 1_300,
        "backfill_rows_written_total": 85_000,
        "backfill_rows_inserted_total": 84_200,
        "backfill_rows_upserted_total": 700,
        "backfill_rows_deleted_total": 100,
        **{f"backfill_state{one}": float(one == "running") for one in STATES},
    }
    assert told == expected


def test_how_many_tables_of_a_commit_are_written_is_there_while_a_runner_writes_it(tmp_path: Path) -> None:
    at = Committing(1_763_692_900_000, ("a", "b"), ("c",))
    told = in_file(tmp_path, progress=progress(committing=at))
    assert (told["backfill_commit_tables"], told["backfill_commit_tables_written"]) == (3, 2)
    assert "backfill_commit_tables" not in in_file(tmp_path, progress=progress(committing=at), live=False)


def test_when_snapshot_and_log_were_finished_and_that_a_job_falls_behind_is_there(tmp_path: Path) -> None:
    finished = {"snapshot_finished_ms": 1_763_692_700_000, "log_store_finished_ms": 1_763_692_800_500}
    behind = progress(phase=Phase.LOG_STORE, not_converging=Limit("more arrives"), **finished)
    told = in_file(tmp_path, progress=behind)
    assert told["backfill_snapshot_finished_timestamp_seconds"] == 1_763_692_700
    assert told["backfill_log_finished_timestamp_seconds"] == 1_763_692_800.5
    assert (told["backfill_not_converging"], told["backfill_phaselog-store"]) == (1, 1)


def test_the_headroom_is_there_where_it_is_known(tmp_path: Path) -> None:
    told = in_file(tmp_path, progress=progress(headroom=HOUR, looked_ms=NOW_MS))
    assert told["backfill_headroom_seconds"] == 3600
    for unknown in (None, Headroom.unbounded("it has no retention"), Headroom.unknown("it is not told")):
        assert "backfill_headroom_seconds" not in in_file(tmp_path, progress=progress(headroom=unknown))


NOW_MS = 1_800_000_000_000
HOUR = Headroom.of_age(Unread(START, False, NOW_MS), None, 3_600_000, "retention.ms (1 h)")


def test_what_was_skipped_is_a_counter_by_kind(tmp_path: Path) -> None:
    file = tmp_path / "backfill.prom"
    with measured(lambda: looked(progress=progress(skipped={"tombstones": 2, "heartbeats": 9})), str(file), None):
        pass
    told = [line for line in file.read_text().splitlines() if line.startswith("backfill_records_skipped")]
    assert told == [
        'backfill_records_skipped_total{backfill_job="orders",kind="heartbeats"} 9.0',
        'backfill_records_skipped_total{backfill_job="orders",kind="tombstones"} 2.0',
    ]


def test_failures_are_a_counter_by_cause(tmp_path: Path) -> None:
    file = tmp_path / "backfill.prom"
    with measured(lambda: looked(progress=progress(failures={"ECONNREFUSED": 2, "57P01": 9})), str(file), None):
        pass
    told = [line for line in file.read_text().splitlines() if line.startswith("backfill_transient_failures")]
    assert told == [
        'backfill_transient_failures_total{backfill_job="orders",cause="57P01"} 9.0',
        'backfill_transient_failures_total{backfill_job="orders",cause="ECONNREFUSED"} 2.0',
    ]


def test_partitions_added_are_a_counter_that_is_absent_before_they_are_observed(tmp_path: Path) -> None:
    name = "backfill_partitions_added_total"
    assert in_file(tmp_path, progress=progress(partitions_added=0))[name] == 0
    assert in_file(tmp_path, progress=progress(partitions_added=3))[name] == 3
    assert name not in in_file(tmp_path, progress=progress())


def test_rows_written_are_a_counter_by_table_and_phase(tmp_path: Path) -> None:
    file = tmp_path / "backfill.prom"
    told = progress(written={"orders": {"snapshot": 12, "upstream": 3}, "users": {"log-store": 1}})
    with measured(lambda: looked(progress=told), str(file), None):
        pass
    lines = [one for one in file.read_text().splitlines() if one.startswith("backfill_table_rows_written")]
    assert lines == [
        'backfill_table_rows_written_total{backfill_job="orders",phase="snapshot",table="orders"} 12.0',
        'backfill_table_rows_written_total{backfill_job="orders",phase="upstream",table="orders"} 3.0',
        'backfill_table_rows_written_total{backfill_job="orders",phase="log-store",table="users"} 1.0',
    ]


def test_what_is_not_known_is_absent_and_who_is_gone_is_not_up(tmp_path: Path) -> None:
    told = in_file(tmp_path, progress=progress(rows_total=None, held_bytes=12), control=Control(), live=False)
    assert not {"backfill_lag_seconds", "backfill_throttle_rows_per_second", "backfill_spool_bytes"} & set(told)
    assert not {"backfill_pending_upstream_epochs", "backfill_upstream_log_held_bytes"} & set(told)
    assert (told["backfill_up"], told["backfill_statedead"], told["backfill_staterunning"]) == (0, 1, 0)


def test_every_state_that_a_job_can_show_is_listed() -> None:
    assert set(STATES) == {state.value for state in JobState} | {"dead"}


def test_the_port_serves_what_is_true_now() -> None:
    port = free_port()
    views = [looked(state=JobState.PAUSED), looked()]

    def look() -> tuple[JobView, Totals]:
        if not views:
            raise NoSuchJob("it was dropped")
        return views.pop()

    with measured(look, None, str(port)):
        scraped = [urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode() for _ in range(3)]
    assert [read(text)["backfill_staterunning"] for text in scraped[:2]] == [1, 0]
    assert scraped[2] == ""
    with pytest.raises(URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=1)


@pytest.mark.parametrize(
    ("file", "port", "said"),
    [
        ("/no/folder/x.prom", None, "its folder does not exist or is not writable"),
        (None, "http", "neither a port"),
        (None, "70000", "neither a port"),
        (None, "no-such-host.invalid:9100", "no-such-host.invalid:9100"),
    ],
)
def test_where_metrics_cannot_be_is_refused_before_anything_runs(
    file: str | None, port: str | None, said: str
) -> None:
    with pytest.raises(UsageError, match=said), measured(looked, file, port):
        pytest.fail("it ran")


def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(UsageError, match=f"--metrics-port {port}: "), measured(looked, None, port):
            pytest.fail("it ran")


DOCS = Path(__file__).parents[3] / "docs"


def test_the_page_says_of_each_metric_what_its_help_says(tmp_path: Path) -> None:
    finished = {"snapshot_finished_ms": 1, "log_store_finished_ms": 2}
    told = progress(
        spool=SPOOL,
        held_bytes=12,
        skipped={"heartbeats": 1},
        headroom=HOUR,
        deadline=Outlook(5),
        written={"orders": {"snapshot": 1}},
        failures={"57P01": 1},
        partitions_added=0,
        committing=Committing(1_763_692_900_000, (), ("t",)),
        **finished,
    )
    with measured(lambda: looked(progress=told), str(tmp_path / "a.prom"), None):
        pass
    families = text_string_to_metric_families((tmp_path / "a.prom").read_text())
    helped = {
        (f"{one.name}_total" if one.type == "counter" else one.name, one.type): one.documentation
        for one in families
    }
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*) \|$", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    page = {(name, kind): f"{said[0].upper()}{said[1:]}." for name, kind, said in rows}
    assert page == helped


def test_the_dashboard_uses_what_there_is(tmp_path: Path) -> None:
    told = in_file(tmp_path, progress=progress(spool=SPOOL, held_bytes=12))
    names = {"backfill_state" if name.startswith("backfill_state") else name for name in told}
    panels = json.loads((DOCS / "dashboard.json").read_text())["panels"]
    used = {name for one in panels for target in one["targets"] for name in NAME.findall(target["expr"])}
    assert used <= names | {"backfill_job"}


NAME = re.compile(r"backfill_\w+")
