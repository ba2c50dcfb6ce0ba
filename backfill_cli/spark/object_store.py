"""Tables and files on S3: one description of the store, in the environment, for every client that reads there.

Spark reads through Hadoop's S3A; deltalake, pyiceberg and pyarrow read through clients of their own. All of them
find credentials where AWS's tools look for them. An address, a region and limits they know by different names.
"""

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from backfill_cli.errors import BackfillError, Fatal, Transient, UsageError, retried

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

CALLING = re.compile(r"^An error occurred while calling [\w.$:]+\s*:?\s*")
"""The first line of an error whose class PySpark does not know; `z:` stands before a static method."""

_ON_S3 = re.compile(r"s3a?://")
ENDPOINTS, REGIONS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), ("AWS_REGION", "AWS_DEFAULT_REGION")
CREDENTIALS = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_SESSION_TOKEN), or AWS_PROFILE"
ANY_REGION = "us-east-1"
"""For a store with an address of its own, which needs a region in signatures only."""

CONNECT_S = 5
SILENCE_S = 10
"""Limits of one attempt; the second, of the time without a byte: 15 s in S3A. A call takes three or four."""

_S3A = "spark.hadoop.fs.s3a."
_FILE_SYSTEM, _ABSTRACT = "org.apache.hadoop.fs.s3a.S3AFileSystem", "org.apache.hadoop.fs.s3a.S3A"
_PROVIDERS = ",".join(
    (
        "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
        "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
    )
)
"""S3A's own settings first; then what every other client looks at, which S3A by default does not: profiles."""


def on_s3(told: str) -> bool:
    return _ON_S3.match(told) is not None


def one_spelling(place: str) -> str:
    """One text for all URIs that Hadoop takes for one place: s3a:// or s3://, `..`, doubled or trailing `/`."""
    scheme, _, rest = _ON_S3.sub("s3://", place, count=1).partition("://")
    host, _, path = rest.partition("/")
    if not rest or "/" in scheme:
        return place
    return f"{scheme}://{host}{posixpath.normpath('/' + path.lstrip('/'))}".rstrip("/")


@dataclass(frozen=True, slots=True)
class Store:
    """endpoint: the address of a store that is not AWS's own. region: None if it is the bucket's to tell.

    keys: whether the environment has credentials, rather than a profile or a role.
    """

    endpoint: str | None
    region: str | None
    keys: bool = True

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Store":
        endpoint = next((environ[name].rstrip("/") for name in ENDPOINTS if environ.get(name)), None)
        region = next((environ[name] for name in REGIONS if environ.get(name)), None)
        return cls(endpoint, region or (ANY_REGION if endpoint else None), bool(environ.get("AWS_ACCESS_KEY_ID")))

    def for_spark(self) -> dict[str, str]:
        """Settings of a session that reads s3:// and s3a://."""
        settings = {
            "spark.hadoop.fs.s3.impl": _FILE_SYSTEM,
            "spark.hadoop.fs.AbstractFileSystem.s3.impl": _ABSTRACT,
            f"{_S3A}aws.credentials.provider": _PROVIDERS,
            f"{_S3A}connection.establish.timeout": f"{CONNECT_S}s",
            f"{_S3A}connection.timeout": f"{SILENCE_S}s",
            # Retries of the SDK in each of S3A's own: with both, a silent store was tried for four minutes.
            f"{_S3A}attempts.maximum": "0",
            f"{_S3A}retry.limit": "1",
            f"{_S3A}retry.throttle.limit": "8",
        }
        if self.region is not None:
            settings[f"{_S3A}endpoint.region"] = self.region
        if self.endpoint is not None:
            settings |= {f"{_S3A}endpoint": self.endpoint, f"{_S3A}path.style.access": "true"}
        return settings

    def for_delta(self) -> dict[str, str]:
        """Options of deltalake. Plain HTTP is allowed if the address says so."""
        told = {"aws_region": self.region or "", "aws_endpoint_url": self.endpoint or ""}
        limits = {"connect_timeout": f"{CONNECT_S}s", "max_retries": "2", "retry_timeout": f"{3 * SILENCE_S}s"}
        plain = {"aws_allow_http": "true"} if (self.endpoint or "").startswith("http://") else {}
        other = {} if self.keys else {"aws_force_credential_load": "true"}
        return {**{name: value for name, value in told.items() if value}, **limits, **plain, **other}

    def for_pyiceberg(self) -> dict[str, str]:
        """Properties of a FileIO, or of a catalog."""
        told = {"s3.region": self.region or "", "s3.endpoint": self.endpoint or ""}
        limits = {"s3.connect-timeout": str(CONNECT_S), "s3.request-timeout": str(SILENCE_S)}
        return {**{name: value for name, value in told.items() if value}, **limits}

    def files(self) -> "FileSystem":
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(
            region=self.region,
            endpoint_override=self.endpoint,
            connect_timeout=CONNECT_S,
            request_timeout=SILENCE_S,
        )


def store() -> Store:
    return Store.of(os.environ)


def store_of(uri: str) -> Store:
    """The store of a URI on S3. Raises UsageError for a URI that only some clients would understand."""
    found = urlsplit(uri)
    if found.query or found.username is not None or not found.netloc:
        raise UsageError(
            f"{uri}: on S3, a URI has a bucket and a path, and nothing else",
            "put the store's address in AWS_ENDPOINT_URL, its region in AWS_REGION, and the credentials in "
            f"{CREDENTIALS}",
        )
    with store_errors(uri):
        return _reached(store(), found.netloc)


@cache
def _reached(told: Store, bucket: str) -> Store:
    """The store, once it has answered: each client would try for long, and to some a missing bucket is empty."""
    from pyarrow.fs import FileType

    known = told if told.region is not None else replace(told, region=_region_of(bucket))
    try:
        if known.files().get_file_info(bucket).type == FileType.NotFound:
            raise OSError(f"AWS Error NO_SUCH_BUCKET: {bucket}")
    except OSError as exc:
        if not isinstance(meant(bucket, str(exc)), Fatal) or "NO_SUCH_BUCKET" in str(exc):
            raise
    return known  # also for one who may not see the bucket itself, but what is in it


def _region_of(bucket: str) -> str:
    from pyarrow.fs import resolve_s3_region

    return str(resolve_s3_region(bucket))


_OF_STORE = re.compile(
    r"AWS Error|Generic S3 error|Error performing [A-Z]+ http|lacked the necessary privileges|S3Exception|fs\.s3a"
    r"|amazon\.awssdk|AWSClientIOException|UnknownStoreException|NoAuthWithAWS"
    r"|error occurred while loading credentials|IMDS session token|providers in chain provided credentials"
)
"""What pyarrow, deltalake and S3A say of a store, and nothing else does."""

_NO_BUCKET = re.compile(r"NoSuchBucket|NO_SUCH_BUCKET|UnknownStoreException|bucket does not exist", re.IGNORECASE)
_DENIED = re.compile(
    r"InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|SignatureDoesNotMatch|INVALID_SIGNATURE|AccessDenied|ACCESS_DENIED"
    r"|ExpiredToken|InvalidToken|NoAuthWithAWS|necessary privileges|(?:unable to load|while loading) credentials"
    r"|IMDS session token|chain provided credentials"
    r"|\[code 15\]|(?:HTTP status|Status Code:) 40[13]|\b40[13] (?:Forbidden|Unauth)",
    re.IGNORECASE,
)
_PASSING = re.compile(
    r"NETWORK_CONNECTION|SLOW_DOWN|SlowDown|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|InternalError|REQUEST_TIMEOUT"
    r"|(?:HTTP status|Status Code:) 5\d\d|\b5\d\d (?:Internal|Service|Bad Gateway|Gateway)|timed? ?out|dns error"
    r"|error sending request|ConnectException|Connection refused|UnknownHostException|after \d+ retries",
    re.IGNORECASE,
)

_XML = re.compile(r"(?:<\?xml[^>]*>\s*)?<Error>.*?(?:</Error>|$)")
"""The body of a store's answer, which a client quotes as it came."""


def _code_and_message(body: re.Match[str]) -> str:
    found = [re.search(rf"<{name}>(.*?)</{name}>", body[0]) for name in ("Code", "Message")]
    return unescape(": ".join(one[1] for one in found if one)) or body[0]


def meant(what: str, said: str) -> BackfillError | None:
    """Our error for what a client said of the store; None if it is about something else.

    what: where it happened, the beginning of the message.
    """
    if _OF_STORE.search(said) is None:
        return None
    where = f" at {address}" if (address := store().endpoint) else ""
    without_frames = said.partition("\n\tat ")[0]
    text = _XML.sub(_code_and_message, " ".join(CALLING.sub("", without_frames).split()))[:300]
    if _NO_BUCKET.search(said):
        gone = f"{what}: this bucket does not exist{where}: {text}"
        return Fatal(gone, "create the bucket, or correct the URI").of("")
    if _DENIED.search(said):
        return Fatal(
            f"{what}: access is denied{where}: {text}",
            f"correct {CREDENTIALS} in this process's environment, or give them rights in the bucket",
        ).of("")
    if _PASSING.search(said):
        return Transient(
            f"{what}: the object store{where} does not answer: {text}",
            retried("correct AWS_ENDPOINT_URL in this process's environment, if it is wrong"),
        )
    return None


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """What pyarrow says of the store in the block becomes ours; other errors, such as a missing file, do not."""
    try:
        yield
    except OSError as exc:
        ours = meant(what, str(exc))
        if ours is None:
            raise
        raise ours from exc
