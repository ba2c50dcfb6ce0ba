"""`backfill drop` of a job that holds something upstream: refused before it forgets what fills a disk there."""

import json
from pathlib import Path

import pytest
from command_builders import Run

from backfill_cli.catalog import Catalog
from backfill_cli.config import JobConfig, load
from backfill_cli.contracts import JobDefinition, SinkTable
from backfill_cli.errors import UsageError
from backfill_cli.model.checkpoint import Checkpoint
from backfill_cli.model.job import Control, Phase
from backfill_cli.model.position import Position
from backfill_cli.model.upstream import PendingStart, Pin

CONFIG = """
[job]
name = "orders"
staging = "staging"
[upstream]
{upstream}
[[tables]]
name = "{table}"
key = ["id"]
[sink]
type = "duckdb"
path = "sink.duckdb"
"""
POSTGRES = 'type = "postgres"\ndsn = "${env:ORDERS_DSN}"\nslot = "orders_slot"'
ICEBERG = 'type = "iceberg"\ntable = "{folder}/{{name}}"'
KAFKA = """type = "kafka"
bootstrap_servers = "127.0.0.1:1"
topic = "orders"
value = { format = "rows", schema = "id BIGINT" }
options = { "sasl.username" = "u", "sasl.password" = "${env:ORDERS_SECRET}" }"""
TAG = {"iceberg": {"orders": {"id": "5", "tag": "backfill_pin_ab"}}}
CLOSED = "postgresql://u@127.0.0.1:1/x"
DROP_SLOT = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name ="
STATEMENTS = (
    f"{DROP_SLOT} 'orders_slot'",
    'DROP PUBLICATION IF EXISTS "orders_slot_named"',
    'DROP PUBLICATION IF EXISTS "orders_slot"',
)


def job_of(folder: Path, upstream: str, table: str, identity: str) -> Catalog:
    """The default catalog with a job that was never run."""
    (folder / "job.toml").write_text(CONFIG.format(upstream=upstream, table=table))
    config = load(folder / "job.toml")
    pin = Pin(Position(), None, None, (), identity=identity)
    target = SinkTable(table, "orders", ("id",), "{}")
    definition = JobDefinition("orders", config.stored(), "{}", pin, "forever", "snapshot", (target,))
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    catalog.create_job(definition, Control(), Checkpoint(0, 0, 0, "-", "{}", Phase.SNAPSHOT, Position()))
    return catalog


@pytest.mark.parametrize(
    ("dsn", "code", "said"),
    [(None, 2, "${env:ORDERS_DSN}: not set in the environment"), (CLOSED, 6, "connection")],
    ids=["without its secret", "not answering"],
)
@pytest.mark.parametrize("more", [(), ("--with-rows",)], ids=["", "with rows"])
def test_a_drop_that_cannot_reach_the_upstream_is_refused_first_and_names_the_way_on(
    run: Run,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    dsn: str | None,
    code: int,
    said: str,
    more: tuple[str, ...],
) -> None:
    catalog = job_of(folder, POSTGRES, "public.orders", "{}")
    monkeypatch.delenv("ORDERS_DSN", raising=False)
    if dsn is not None:
        monkeypatch.setenv("ORDERS_DSN", dsn)
    refused = run("drop", "orders", *more, "--confirm", "orders")
    assert refused.exit_code == code, refused.stderr
    assert said in refused.stderr
    assert "--without-upstream --confirm orders" in refused.stderr
    assert [row.lease.token for row in catalog.jobs()] == [0], "nothing has changed"
    done = run("drop", "orders", "--without-upstream", "--confirm", "orders", "--json")
    assert done.exit_code == 0, done.stderr
    left = json.loads(done.stdout)["left_upstream"]
    assert all(statement in "; ".join(left) for statement in STATEMENTS)
    assert catalog.jobs() == ()


def test_a_plug_in_that_cannot_tell_what_stays_is_refused_before_anything_changes(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = job_of(folder, POSTGRES, "public.orders", "{}")

    def of_an_older_contract(*_: object) -> object:
        raise UsageError("upstream type 'postgres' opens a thing, which is no Source", "update its package")

    monkeypatch.setattr(JobConfig, "unreached_upstream", of_an_older_contract)
    refused = run("drop", "orders", "--without-upstream", "--confirm", "orders")
    assert refused.exit_code == 2, refused.stderr
    assert [row.lease.token for row in catalog.jobs()] == [0], "nothing has changed"


def test_the_statements_are_printed_each_on_a_line(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_of(folder, POSTGRES, "public.orders", "{}")
    monkeypatch.delenv("ORDERS_DSN", raising=False)
    done = run("drop", "orders", "--without-upstream", "--confirm", "orders")
    assert "the upstream still has what the job held" in done.stderr
    printed = [line for line in done.stderr.splitlines() if line.startswith("  ")]
    for line, statement in zip(printed, STATEMENTS, strict=True):
        assert line.startswith(f"  {statement}")
        assert line.endswith(";")


def test_a_tag_is_named_with_the_statement_that_drops_it(run: Run, folder: Path) -> None:
    catalog = job_of(folder, ICEBERG.format(folder=folder / "lake"), "orders", json.dumps(TAG))
    done = run("drop", "orders", "--without-upstream", "--confirm", "orders")
    assert done.exit_code == 0, done.stderr
    assert "DROP TAG IF EXISTS backfill_pin_ab" in done.stderr
    assert catalog.jobs() == ()


def test_a_table_that_is_gone_holds_nothing_and_its_job_can_be_dropped(run: Run, folder: Path) -> None:
    job_of(folder, ICEBERG.format(folder=folder / "lake"), "orders", json.dumps(TAG))
    done = run("drop", "orders", "--confirm", "orders")
    assert done.exit_code == 0, done.stderr
    assert "DROP TAG" not in done.stderr


def test_what_a_killed_start_left_is_named_by_its_mark(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "job.toml").write_text(CONFIG.format(upstream=POSTGRES, table="public.orders"))
    catalog = Catalog(folder / ".backfill/catalog.duckdb")
    stored = load(folder / "job.toml").stored()
    catalog.starts.begin(PendingStart("orders", "abc", stored, Pin(Position(), None, None, ()), 1))
    monkeypatch.delenv("ORDERS_DSN", raising=False)
    refused = run("drop", "orders", "--confirm", "orders")
    assert refused.exit_code == 2
    assert "backfill drop orders --without-upstream --confirm orders" in refused.stderr
    done = run("drop", "orders", "--without-upstream", "--confirm", "orders")
    assert done.exit_code == 0, done.stderr
    for statement in (f"{DROP_SLOT} 'backfill_start_abc'", *STATEMENTS):
        assert statement in done.stderr
    assert catalog.starts.of("orders") is None


@pytest.mark.parametrize("more", [(), ("--with-rows",)], ids=["", "with rows"])
def test_the_command_that_leaves_the_upstream_alone_drops_what_was_to_be_dropped(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    job_of(folder, POSTGRES, "public.orders", "{}")
    monkeypatch.delenv("ORDERS_DSN", raising=False)
    refused = run("drop", "orders", *more, "--confirm", "orders")
    assert " ".join(("backfill drop orders", *more, "--without-upstream --confirm orders")) in refused.stderr


def test_a_job_whose_upstream_holds_nothing_is_dropped_without_its_secret(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = job_of(folder, KAFKA, "orders", "{}")
    monkeypatch.delenv("ORDERS_SECRET", raising=False)
    done = run("drop", "orders", "--confirm", "orders")
    assert done.exit_code == 0, done.stderr
    assert catalog.jobs() == ()
