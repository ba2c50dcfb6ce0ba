"""init and config: what they write and show, and what they leave alone."""

import json
from pathlib import Path

import pytest
from command_builders import CONFIG, Run, write_config
from hint_typed import typed

from backfill_cli.config import load
from backfill_cli.config.draft import Asked, Draft, drafted


def test_init_writes_a_config_that_loads_and_never_over_another(run: Run, folder: Path) -> None:
    assert run("init").exit_code == 0
    assert load(folder / "job.toml").job.name == "orders"
    (folder / "job.toml").write_text("mine")
    result = run("init")
    assert result.exit_code == 2
    assert (folder / "job.toml").read_text() == "mine"
    assert run("init", "other.toml").exit_code == 0
    assert run("init", "k.toml", "--upstream", "kafka", "--sink", "postgres").exit_code == 0
    assert load(folder / "k.toml").tree["sink"]["type"] == "postgres"


@pytest.mark.parametrize(("file", "told"), [("x.toml", "x.toml"), ("my job.toml", "'my job.toml'")])
def test_the_commands_in_a_new_config_name_its_own_file(run: Run, folder: Path, file: str, told: str) -> None:
    assert run("init", file).exit_code == 0
    head = (folder / file).read_text().splitlines()[1]
    assert f"backfill plan --config {told} " in head
    assert head.endswith(f"backfill start --config {told}")


def test_a_name_with_a_line_end_does_not_end_a_comment_of_a_new_config(run: Run, folder: Path) -> None:
    assert run("init", "a\nb = 1.toml").exit_code == 0
    assert load(folder / "a\nb = 1.toml").job.name == "orders"


def test_init_that_looks_says_what_is_left_to_fill_in(run: Run, folder: Path) -> None:
    (folder / "lines.csv").write_text("order,note\n1,a\n1,b\n")
    result = run("init", "looked.toml", "--from", "lines.csv")
    assert result.exit_code == 0
    assert (
        "Try: fill in tables.key in it, then: backfill plan --config looked.toml" in result.stderr + result.stdout
    )
    assert json.loads(run("init", "again.toml", "--from", "lines.csv", "--json").stdout) == {
        "schema": 2,
        "file": "again.toml",
        "fill_in": ["key"],
    }
    refused = run("plan", "looked.toml")
    assert refused.exit_code == 2
    assert "tables[0].key: must not be empty" in refused.stderr


@pytest.mark.parametrize("name", ["other.toml", "my other.toml"])
def test_a_config_that_does_not_exist_is_begun_by_its_hint_beside_another(
    run: Run, folder: Path, name: str
) -> None:
    write_config(folder)
    refused = run("config", "show", name)
    assert "the file does not exist" in refused.stderr
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        (words,) = hint.commands()
    assert run(*words).exit_code == 0
    assert load(folder / name).job.name == "orders"
    (folder / "closed").mkdir()
    assert "Try" not in run("config", "show", "closed").stderr


def test_init_for_a_type_that_is_not_there_writes_nothing(run: Run, folder: Path) -> None:
    result = run("init", "--upstream", "kafak")
    assert result.exit_code == 2
    assert "unknown upstream type 'kafak'; did you mean kafka?" in result.stderr
    assert list(folder.iterdir()) == []


def test_config_show_says_where_each_value_comes_from_and_no_secret(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WAREHOUSE_DSN", "postgresql://me:hunter2@h/w")
    (folder / "secret").write_text("hunter3")
    text = CONFIG.replace(
        'type = "duckdb"\npath = "warehouse.duckdb"', 'type = "postgres"\ndsn = "${env:WAREHOUSE_DSN}"'
    )
    text += '[barrier]\ninterval = "500ms"\n[retry]\nlimit = "1000d"\n[spark.conf]\n'
    text += '"a.password" = "${file:secret}"\n"b.token" = "${env:NOT_THERE}"\n'
    file = write_config(folder, text)
    done = run("config", "show", "--json")
    told = {one["path"]: (one["value"], one["origin"], one["note"]) for one in json.loads(done.stdout)["options"]}
    assert told["job.name"] == ("orders", "file", "")
    assert told["job.strategy"] == ("auto", "default", "")
    assert told["upstream.type"] == ("files", "file", "")
    assert told["upstream.snapshot.path"] == (str(folder / "data/snapshot"), "file", "")
    assert told["upstream.snapshot.csv.header"] == (True, "default", "")
    assert told["tables[0].key"] == (["id"], "file", "")
    assert told["sink.dsn"] == ("${env:WAREHOUSE_DSN}", "environment", "WAREHOUSE_DSN")
    assert told["sink.schema"] == ("public", "default", "")
    assert told["barrier.interval"] == ("0.5s", "file", "")
    assert told["barrier.target"] == ("5s", "default", "")
    assert told["retry.limit"] == ("1000d", "file", "")
    assert told['spark.conf."a.password"'] == (f"${{file:{folder}/secret}}", "secret_file", "secret")
    assert told['spark.conf."b.token"'] == ("${env:NOT_THERE}", "environment", "NOT_THERE, which is not set")
    shown = run("config", "show", file)
    assert "barrier.interval" in shown.stdout
    assert "hunter" not in done.output + shown.output
    assert max(len(line.split("  ")) for line in shown.stdout.splitlines()) >= 3


def test_config_show_of_a_key_that_the_upstream_knows(run: Run, folder: Path) -> None:
    text = '[job]\nname = "o"\n[upstream]\ntype = "kafka"\nbootstrap_servers = "h:1"\ntopic = "o"\n'
    text += 'value = { format = "events", schema = "id BIGINT" }\n'
    text += '[[tables]]\nname = "o"\n[sink]\ntype = "duckdb"\npath = "w.duckdb"\n'
    done = run("config", "show", write_config(folder, text), "--json")
    told = {one["path"]: (one["value"], one["origin"]) for one in json.loads(done.stdout)["options"]}
    assert told["tables[0].key"] == (["kafka_partition", "kafka_offset"], "upstream")
    assert told["upstream.value.schema"] == ("id BIGINT", "file")


def test_config_show_of_a_file_with_faults_is_code_2(run: Run, folder: Path) -> None:
    done = run("config", "show", write_config(folder, "[job]\nname = 'A B'\n"))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "job.name" in done.stderr


def test_config_schema_is_json(run: Run) -> None:
    assert json.loads(run("config", "schema").stdout)["title"] == "backfill job"


def test_a_file_that_appears_while_init_looks_is_left_and_another_one_named(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(asked: Asked, place: Path) -> Draft:
        (folder / "job.toml").write_text("mine")
        return drafted(asked, place)

    monkeypatch.setattr("backfill_cli.config.draft.drafted", looked)
    refused = run("init")
    assert (refused.exit_code, (folder / "job.toml").read_text()) == (2, "mine")
    with typed(refused.stderr.split("Try: ", 1)[1]) as hint:
        (command,) = hint.commands()
        assert run(*command).exit_code == 0
        assert load(folder / command[-1]).job.name == "orders"
