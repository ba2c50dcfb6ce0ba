"""The registry's client against one that answers as it should, and as it should not."""

import html
import json
import pickle
import time
from collections.abc import Iterator
from urllib.parse import quote, quote_plus, unquote_plus

import pytest
from hint_typed import typed
from pydantic import ValidationError
from toy_registry import Raw, ToyRegistry, basic, endless, error, running

from backfill_cli.errors import BackfillError, Fatal, Transient
from backfill_cli.schema_registry import http, registry
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import Reference, Schema, SchemaRegistry, UnknownSchema

A = '{"type": "record", "name": "x.A", "fields": [{"name": "i", "type": "int"}]}'
B = '{"type": "record", "name": "x.B", "fields": [{"name": "a", "type": "x.A"}]}'
C = '{"type": "record", "name": "x.C", "fields": [{"name": "a", "type": "x.A"}, {"name": "b", "type": "x.B"}]}'
PASSWORD, TOKEN = "pa ss:wörd-93b1", "token-5ce2"
AT = "upstream.registry"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "SILENCE_S", 0.5)
    monkeypatch.setattr(http, "ANSWER_S", 0.5)
    monkeypatch.setattr(registry, "SETTLE_S", 0.6)


@pytest.fixture
def toy() -> Iterator[ToyRegistry]:
    with running() as one:
        yield one


def opened(url: str, **options: object) -> SchemaRegistry:
    return SchemaRegistry.of(RegistryOptions.model_validate({"url": url, **options}), AT)


def refused(toy: ToyRegistry, kind: type[BackfillError], **options: object) -> BackfillError:
    """What `by_id` raises."""
    with pytest.raises(kind) as caught:
        opened(toy.url, **options).by_id(1)
    assert toy.url in caught.value.message
    return caught.value


def test_a_schema_comes_with_all_that_it_refers_to(toy: ToyRegistry) -> None:
    toy.add("a/1", A)
    toy.add("b", B, references=[{"name": "x.A", "subject": "a/1", "version": 1}])
    references = [{"name": "x.B", "subject": "b", "version": 1}, {"name": "x.A", "subject": "a/1", "version": 1}]
    id = toy.add("c", C, references=references)

    found = opened(toy.url + "/").by_id(id)
    assert found == Schema(3, "AVRO", C, (Reference("x.A", A), Reference("x.B", B)))
    assert opened(toy.url).latest("c") == found


def test_a_schema_is_fetched_once_by_a_process_also_where_it_would_be_another_one_now(toy: ToyRegistry) -> None:
    toy.add("a", A)
    asked = opened(toy.url)
    first = asked.by_id(1)
    toy.schemas[1]["schema"] = B
    assert pickle.loads(pickle.dumps(asked)).by_id(1) is first
    assert toy.asked == ["GET /schemas/ids/1"]


def test_the_newest_schema_of_a_subject_and_all_subjects(toy: ToyRegistry) -> None:
    toy.add("a", A)
    toy.add("a", B, "AVRO")
    asked = opened(toy.url)
    assert asked.latest("a") == Schema(2, "AVRO", B)
    assert asked.latest("b") is None
    assert asked.subjects() == ["a"]


def test_a_schema_is_registered_under_its_subject_and_has_one_id(toy: ToyRegistry) -> None:
    asked = opened(toy.url)
    assert [asked.register("p q", "PROTOBUF", 'syntax = "proto3";') for _ in range(2)] == [1, 1]
    assert toy.subjects == {"p q": [1]}
    assert asked.by_id(1).kind == "PROTOBUF"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (error(409, 409, "Schema being registered is incompatible with an earlier schema"), "not compatible"),
        (error(422, 42201, "Invalid schema"), "Invalid schema"),
    ],
)
def test_a_schema_that_the_registry_refuses_names_the_subject(toy: ToyRegistry, answer: Raw, said: str) -> None:
    toy.script = [answer]
    asked = opened(toy.url)
    with pytest.raises(Fatal, match=f"subject 'a': .*{said}") as caught:
        asked.register("a", "AVRO", A)
    with typed(caught.value) as hint:
        hint.says("use another subject")
        assert asked.register("b", "AVRO", A) == 1


def test_an_unknown_id_is_asked_for_again_for_a_while_but_once_in_a_while_only(toy: ToyRegistry) -> None:
    asked = opened(toy.url)
    with pytest.raises(UnknownSchema, match=f"schema id 7 is not in the registry {toy.url}"):
        asked.by_id(7)
    assert len(toy.asked) > 1
    before = len(toy.asked)
    with pytest.raises(UnknownSchema):
        asked.by_id(8)
    assert len(toy.asked) == before + 1
    toy.add("a", A)
    assert asked.by_id(1).text == A


def test_a_registry_that_is_behind_catches_up(toy: ToyRegistry) -> None:
    toy.add("a", A)
    toy.script = [error(404, 40403, "Schema not found")]
    assert opened(toy.url).by_id(1).text == A


@pytest.mark.parametrize(
    "answer",
    [
        error(500, 50001, "Error in the backend data store"),
        error(503, 503, "leader unknown"),
        error(429, 429, "slow down"),
        Raw(200, [b"{"], {"Content-Length": "500"}),
        Raw(502, [b"<html>bad gateway</html>"]),
    ],
    ids=["500", "503", "429", "half", "proxy"],
)
def test_trouble_that_may_pass_is_waited_for(toy: ToyRegistry, answer: Raw) -> None:
    toy.add("a", A)
    toy.script = [answer]
    failure = refused(toy, Transient)
    with typed(failure) as hint:
        hint.says("start the schema registry")
        assert opened(toy.url).by_id(1).text == A


def test_a_registry_that_is_down_is_named_and_another_address_of_it_is_asked(toy: ToyRegistry) -> None:
    toy.add("a", A)
    with running() as gone:
        down = gone.url
    with pytest.raises(Transient, match=f"{down}: the schema registry does not answer: ") as caught:
        opened(down).by_id(1)
    with typed(caught.value) as hint:
        hint.says("correct upstream.registry.url")
        assert opened(f"{down}, {toy.url}").by_id(1).text == A


def test_an_answer_that_trickles_is_none(toy: ToyRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "ANSWER_S", -1.0)
    toy.add("a", A)
    assert "not complete after" in refused(toy, Transient).message


@pytest.mark.parametrize(
    "answer",
    [
        Raw(200, [b"<html>It works!</html>"]),
        Raw(200, [b'"text"']),
        Raw(200, [b'{"schema": 5}']),
        Raw(200, [b"[" * 100_000]),
        Raw(200, [b"\xff\xfe"]),
        Raw(200, endless(b" ")),
        Raw(404, [b"<html>no such page</html>"]),
        Raw(404, [b'{"error_code": 404, "message": "HTTP 404 Not Found"}']),
        Raw.of({"schema": A, "references": ["x"]}),
        Raw.of({"schema": A, "references": [{"name": "x", "subject": "a"}]}),
    ],
    ids=["html", "text", "number", "deep", "bytes", "huge", "404", "path", "reference", "version"],
)
def test_what_is_no_registry_is_told_so(toy: ToyRegistry, answer: Raw) -> None:
    toy.always = answer
    failure = refused(toy, Fatal)
    assert "schema registry" in failure.message
    assert len(failure.message) < 500
    with running() as right, typed(failure) as hint:
        hint.says("correct upstream.registry.url")
        right.add("a", A)
        assert opened(right.url).by_id(1).text == A


def test_a_redirect_is_not_followed_and_shows_nothing_secret_of_it(toy: ToyRegistry) -> None:
    with running() as other:
        other.add("a", A)
        place = other.url.replace("://", "://u:hidden@") + "/schemas/ids/1?sig=hidden"
        toy.always = Raw(307, [], {"Location": place})
        failure = refused(toy, Fatal, token=TOKEN)
        assert f"a redirect to {other.url}/schemas/ids/1" in failure.message
        assert "hidden" not in failure.message
        assert other.asked == []
        with typed(failure) as hint:
            hint.says("correct upstream.registry.url")
            assert opened(other.url).by_id(1).text == A


@pytest.mark.parametrize("options", [{}, {"user": "app", "password": "wrong"}, {"token": "wrong"}])
def test_who_is_not_let_in_is_told_so_without_secrets(toy: ToyRegistry, options: dict[str, str]) -> None:
    toy.add("a", A)
    for needs, right in (
        (basic("app", PASSWORD), {"user": "app", "password": PASSWORD}),
        (f"Bearer {TOKEN}", {"token": TOKEN}),
    ):
        toy.needs = needs
        failure = refused(toy, Fatal, **options)
        assert "access denied" in failure.message
        shown = f"{failure} {failure.__cause__!r} {opened(toy.url, **right)!r}"
        assert all(secret not in shown for secret in (PASSWORD, TOKEN, "wrong", needs.split()[1]))
        with typed(failure) as hint:
            hint.says("check upstream.registry: user and password, or token")
            assert opened(toy.url, **right).by_id(1).text == A


FORMS = {
    "as it is": lambda one: one,
    "as JSON": lambda one: json.dumps(one)[1:-1],
    "for an address": quote,
    "for a form": quote_plus,
    "as HTML": html.escape,
    "at the end of what is shown": lambda one: "x" * 290 + one,
    "on several lines": lambda one: f"a\n\t{one}\n",
}
"""How an answer can repeat what it was asked with."""
ECHOES = {
    "message": lambda said: [error(500, 50001, said), error(403, 40301, said), error(422, 42201, said)],
    "page": lambda said: [Raw(status, [f"<p>{said}</p>".encode()]) for status in (200, 404, 407, 502)],
    "place": lambda said: [Raw(302, [], {"Location": quote(f"/{said}", safe="/%+:=")})],
    "reference": lambda said: [Raw.of({"schema": A, "references": [said]})],
    "references": lambda said: [Raw.of({"schema": A, "references": one}) for one in (said, 5, True)],
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("echo", ECHOES)
def test_an_answer_that_repeats_a_secret_shows_none_in_an_error(toy: ToyRegistry, echo: str, form: str) -> None:
    secret = "s3cr&t <ü>\"x'-93b1+c7=="
    base64 = basic("app", secret).removeprefix("Basic ")
    for options, hidden in (({"token": TOKEN}, TOKEN), ({"user": "app", "password": secret}, secret)):
        for told in (hidden, base64):
            for answer in ECHOES[echo](f"who is {FORMS[form](told)}?"):
                toy.always = answer
                with pytest.raises(BackfillError) as caught:
                    opened(toy.url, **options).by_id(1)
                failure = caught.value
                shown = unquote_plus(html.unescape(f"{failure} {failure.hint} {failure.__cause__!r}"))
                if told == base64 and "token" in options:
                    continue  # not what it was asked with
                assert all(told[i : i + 6] not in shown for i in range(len(told) - 5)), failure.message


@pytest.mark.parametrize("password", ["avro", "AVRO", "a", "json"])
def test_a_password_that_is_a_kind_of_schema_hides_none(toy: ToyRegistry, password: str) -> None:
    toy.add("a", A)
    assert opened(toy.url, user="app", password=password).by_id(1).kind == "AVRO"


def test_an_answer_of_backslashes_is_looked_through_at_once() -> None:
    secret = http._written(PASSWORD)
    begun = time.process_time()
    assert secret.search("\\" * 20_000) is None
    assert time.process_time() - begun < 20  # minutes, where a run is looked at from each of its places


def test_references_that_do_not_exist_never_end_or_contradict_each_other_are_refused(toy: ToyRegistry) -> None:
    def refused_with(*references: dict[str, object]) -> BackfillError:
        id = toy.add("top", B + " " * len(toy.schemas), references=references)
        with pytest.raises(Fatal) as caught:
            opened(toy.url).by_id(id)
        return caught.value

    toy.add("a", A)
    toy.add("a", C)
    once = {"name": "x.A", "subject": "a", "version": 1}
    lacks = refused_with({**once, "version": 3})
    assert "version 3 of subject 'a', which is not there" in lacks.message
    with typed(lacks) as hint:
        hint.says("register it again")
        toy.add("a", '"int"')
        assert opened(toy.url).by_id(max(toy.schemas) - 1).references == (Reference("x.A", '"int"'),)
    twice = refused_with(once, {**once, "version": 2})
    assert "refers to two schemas as 'x.A'" in twice.message
    with typed(twice) as hint:
        hint.says("with one version of each schema")
        assert opened(toy.url).by_id(toy.add("top", B, references=[once])).references == (Reference("x.A", A),)
    toy.add("self", B, references=[{"name": "x.B", "subject": "self", "version": 1}])
    assert len(opened(toy.url).latest("self").references) == 1  # type: ignore[union-attr]
    for number in range(registry.REFERENCES + 2):
        one = {"name": f"n{number + 1}", "subject": f"chain{number + 1}", "version": 1}
        toy.add(f"chain{number}", json.dumps(str(number)), references=[one])
    with pytest.raises(Fatal, match=f"refers to more than {registry.REFERENCES}"):
        opened(toy.url).latest("chain0")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"url": "registry:8081"}, "must be http"),
        ({"url": "ftp://registry"}, "must be http"),
        ({"url": "http://registry:99999"}, "must be http"),
        ({"url": "http://registry,"}, "must be http"),
        ({"url": "http://"}, "must be http"),
        ({"url": "http://a b"}, "must be http"),
        ({"url": "http://app:secret@registry"}, "options of their own"),
        ({"url": "http://registry?x=1"}, "leave out"),
        ({"user": "app"}, "go together"),
        ({"user": "app", "password": "x", "token": "y"}, "or token"),
        ({"token": "a\nb"}, "one line"),
        ({"token": "ü"}, "one line"),
        ({"key": "/key.pem"}, "certificate"),
        ({"id_bytes": 8}, "global_ids = true, or false"),
        ({"global_ids": "true"}, "url ends in /apis/ccompat/v7"),
        ({"ca": "/ca.pem"}, "for https only"),
    ],
)
def test_options_that_do_not_fit_are_refused_without_showing_them(options: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said) as caught:
        RegistryOptions.model_validate({"url": "http://registry:8081", **options})
    assert "secret" not in str(caught.value)


def test_an_address_may_be_a_reference() -> None:
    assert RegistryOptions(url="${env:REGISTRY}").url == "${env:REGISTRY}"


def test_an_answer_that_refuses_the_request_is_told_with_its_status(toy: ToyRegistry) -> None:
    toy.add("a", A)
    toy.always = error(400, 40000, "no such tenant")
    failure = refused(toy, Fatal)
    assert "answers HTTP 400" in failure.message
    with typed(failure) as hint:
        hint.says("correct upstream.registry")
        toy.always = None
        assert opened(toy.url).by_id(1).text == A
