"""One description of an S3 store, for clients that call its parts by different names."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from hint_typed import typed
from pyarrow.fs import FileType

from backfill_cli.errors import BackfillError, Fatal, Transient, UsageError
from backfill_cli.lake.delta.edge import Where
from backfill_cli.lake.iceberg.places import Place
from backfill_cli.spark import object_store
from backfill_cli.spark.object_store import Store, meant, on_s3, one_spelling, store, store_errors, store_of

KEY = "AKIDEXAMPLE"
OWN = Store.of({"AWS_ENDPOINT_URL": "http://127.0.0.1:9000/", "AWS_ACCESS_KEY_ID": "x"})


def test_a_store_with_an_address_of_its_own_needs_no_region_and_no_other_setting() -> None:
    assert Store("http://127.0.0.1:9000", "us-east-1") == OWN
    spark = OWN.for_spark()
    assert spark["spark.hadoop.fs.s3a.endpoint"] == "http://127.0.0.1:9000"
    assert spark["spark.hadoop.fs.s3a.path.style.access"] == "true"
    assert OWN.for_delta()["aws_allow_http"] == "true"
    assert OWN.for_pyiceberg()["s3.endpoint"] == "http://127.0.0.1:9000"


def test_the_address_of_s3_alone_comes_before_that_of_every_service() -> None:
    told = {"AWS_ENDPOINT_URL": "https://every", "AWS_ENDPOINT_URL_S3": "https://s3", "AWS_DEFAULT_REGION": "eu"}
    assert Store.of(told) == Store("https://s3", "eu", keys=False)
    assert "aws_allow_http" not in Store.of(told).for_delta()


def test_without_keys_in_the_environment_every_client_looks_for_a_profile_or_a_role() -> None:
    told = Store.of({"AWS_PROFILE": "lake", "AWS_REGION": "eu"})
    assert told.for_delta()["aws_force_credential_load"] == "true"
    assert "DefaultCredentialsProvider" in told.for_spark()["spark.hadoop.fs.s3a.aws.credentials.provider"]
    assert "aws_force_credential_load" not in OWN.for_delta()


def test_of_a_bucket_of_aws_the_region_is_looked_up_where_none_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*object_store.ENDPOINTS, *object_store.REGIONS):
        monkeypatch.delenv(name, raising=False)
    files = SimpleNamespace(get_file_info=lambda _bucket: SimpleNamespace(type=FileType.Directory))
    monkeypatch.setattr(Store, "files", lambda _store: files)
    monkeypatch.setattr(object_store, "_region_of", lambda bucket: f"region of {bucket}")
    assert store_of("s3://b/t").region == "region of b"
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert store_of("s3://b/t").region == "eu-west-1"
    assert "spark.hadoop.fs.s3a.endpoint.region" not in Store.of({}).for_spark()


@pytest.mark.parametrize(
    "uri", ["s3://bucket/t?endpoint_override=localhost:9000&scheme=http", "s3://KEY@bucket/t", "s3:///t"]
)
def test_what_only_some_clients_read_in_a_uri_is_refused(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="a URI has a bucket and a path, and nothing else") as refused:
        store_of(uri)
    with typed(refused.value) as hint, s3() as address:
        hint.says("the store's address in AWS_ENDPOINT_URL, its region in AWS_REGION")
        hint.says("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
        told = {"AWS_ENDPOINT_URL": address, "AWS_REGION": "eu", "AWS_ACCESS_KEY_ID": KEY}
        for name, value in {**told, "AWS_SECRET_ACCESS_KEY": "x"}.items():
            monkeypatch.setenv(name, value)
        assert store_of("s3://bucket/t") == Store(address, "eu")


class _Bucket(http.server.BaseHTTPRequestHandler):
    """A store with one bucket, `bucket`, for whoever has the key KEY."""

    def do_HEAD(self) -> None:
        known = f"Credential={KEY}/" in self.headers.get("Authorization", "")
        self.send_response(404 if not self.path.startswith("/bucket") else 200 if known else 403)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@contextmanager
def s3() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Bucket) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_what_a_store_refuses_it_gives_once_its_hint_is_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(bucket: str, **environment: str) -> FileType:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with store_errors(f"s3://{bucket}/t"):
            store_of(f"s3://{bucket}/t")  # which does not take it amiss that the bucket itself may not be seen
            return store().files().get_file_info(bucket).type

    keys = {"AWS_ACCESS_KEY_ID": "other", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "us-east-1"}
    with s3() as address:
        with pytest.raises(
            Transient, match=r"the object store at http://127\.0\.0\.1:1 does not answer"
        ) as silent:
            asked("bucket", AWS_ENDPOINT_URL="http://127.0.0.1:1", **keys)
        with typed(silent.value) as hint:
            hint.says("correct AWS_ENDPOINT_URL in this process's environment")
            with pytest.raises(Fatal, match="access is denied at http") as denied:
                asked("bucket", AWS_ENDPOINT_URL=address)
        with typed(denied.value) as hint:
            hint.says("correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
            assert asked("bucket", AWS_ACCESS_KEY_ID=KEY) == FileType.Directory
        with pytest.raises(Fatal, match="this bucket does not exist") as missing:
            asked("buckte")
        with typed(missing.value) as hint:
            hint.says("or correct the URI")
            assert asked("bucket") == FileType.Directory


def test_both_schemes_name_the_same_place() -> None:
    assert one_spelling("s3a://b/t") == one_spelling("s3://b/t") == "s3://b/t"
    assert one_spelling("/data/s3a://b") == "/data/s3a://b"
    assert [on_s3(one) for one in ("s3://b", "s3a://b", "gs://b", "/s3://b")] == [True, True, False, False]


SAID = {
    "When listing objects under key 't/' in bucket 'b': AWS Error ACCESS_DENIED during ListObjectsV2": Fatal,
    "When reading information for key 'k' in bucket 'b': AWS Error [code 15]: No response body.": Fatal,
    "Kernel error -> The operation lacked the necessary privileges to complete for path t/_delta_log": Fatal,
    "Generic S3 error Error performing GET http://h/b/t - 404 Not Found <Error><Code>NoSuchBucket</Code>": Fatal,
    "software.amazon.awssdk.services.s3.model.S3Exception: Forbidden (Service: S3, Status Code: 403)": Fatal,
    "When listing objects in bucket 'b': AWS Error SLOW_DOWN during ListObjectsV2 operation": Transient,
    "When getting information for bucket 'b': AWS Error UNKNOWN (HTTP status 503) during HeadBucket": Transient,
    "AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 28, Timeout was reached": Transient,
    "Generic S3 error Error performing GET http://h/b, after 2 retries - 503 Service Unavailable": Transient,
    "software.amazon.awssdk.core.exception.SdkClientException: Connect to h failed: Connection refused": Transient,
}
"""What the three clients say, as seen."""


@pytest.mark.parametrize("said", SAID, ids=range(len(SAID)))
def test_what_each_client_says_of_a_store_is_refused_or_retried(said: str) -> None:
    error = meant("s3://b/t", said)
    assert type(error) is SAID[said]
    assert error.message.startswith("s3://b/t: ")
    assert error.hint


@pytest.mark.parametrize(
    "said",
    [
        "Path does not exist 'b/t/part-0.parquet'. Detail: [errno 2] No such file or directory",
        "Parquet magic bytes not found in footer: AccessDenied is a file's name",
        "Connection refused",
    ],
)
def test_what_is_not_about_a_store_is_left_to_others(said: str) -> None:
    error: BackfillError | None = meant("s3://b/t", said)
    assert error is None


def test_both_schemes_are_one_iceberg_table_and_one_delta_table(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Place.of("s3a://b/lake/t") == Place.of("s3://b/lake/t/")
    files = SimpleNamespace(get_file_info=lambda _bucket: SimpleNamespace(type=FileType.Directory))
    monkeypatch.setattr(Store, "files", lambda _store: files)
    monkeypatch.setenv("AWS_REGION", "eu")
    one, other = (Where.of(f"{scheme}://b/lake/t", "t") for scheme in ("s3", "s3a"))
    assert one.identity == other.identity
    assert other.uri == "s3a://b/lake/t"


NO_KEYS = [
    "Kernel error -> Operation not supported ↳ an error occurred while loading credentials ↳ failed to load IMDS "
    "session token ↳ dispatch failure ↳ timeout ↳ error trying to connect: HTTP connect timeout occurred after 1s",
    "Operation not supported ↳ the credential provider was not enabled ↳ no providers in chain provided "
    "credentials",
    "software.amazon.awssdk.core.exception.SdkClientException: Unable to load credentials from any of the "
    "providers",
]


@pytest.mark.parametrize("said", NO_KEYS, ids=range(len(NO_KEYS)))
def test_where_no_client_finds_credentials_the_variables_are_named(said: str) -> None:
    error = meant("s3://b/t", said)
    assert type(error) is Fatal
    assert error.message.startswith("s3://b/t: access is denied")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in str(error.hint)


def test_of_an_answer_in_xml_the_code_and_the_message_are_told() -> None:
    said = (
        "Generic S3 error: Error performing GET http://h/b?prefix=t in 1.2ms - Server returned non-2xx status "
        'code: 403 Forbidden: <?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>SignatureDoesNotMatch</Code>'
        "<Message>The signature &amp; the key differ.</Message><BucketName>b</BucketName><Resource>/b/</Resource>"
        f"<HostId>{'f' * 300}</HostId></Error>"
    )
    error = meant("s3://b/t", said)
    assert type(error) is Fatal
    assert error.message.endswith("403 Forbidden: SignatureDoesNotMatch: The signature & the key differ.")


def test_an_error_of_java_is_told_without_its_frames() -> None:
    said = (
        "An error occurred while calling o12.load.\n: java.net.SocketTimeoutException: on s3://b/t: "
        "software.amazon.awssdk.core.exception.SdkClientException: Read timed out\n\tat org.apache.X(X.java:1)"
    )
    error = meant("Spark", said)
    assert error is not None
    assert "does not answer: java.net.SocketTimeoutException" in error.message
    assert "X.java" not in error.message
