"""A registry behind TLS: what checks its certificate, and what it asks of the client."""

import datetime
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hint_typed import typed
from toy_registry import running

from backfill_cli.errors import Fatal, Transient
from backfill_cli.schema_registry import http
from backfill_cli.schema_registry.options import RegistryOptions
from backfill_cli.schema_registry.registry import SchemaRegistry

KEY_PASSWORD = "key-2f6a"
TEXT = '"string"'


class Authority:
    """It signs certificates, files of PEM in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._own = self._signed(self._key, "authority", x509.BasicConstraints(True, None))
        self.file = folder / "ca.pem"
        self.file.write_bytes(self._own.public_bytes(serialization.Encoding.PEM))

    def certificate(self, name: str, password: str | None = None) -> tuple[str, str]:
        """(file of a new certificate, file of its key)."""
        key = ec.generate_private_key(ec.SECP256R1())
        address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        certificate, key_file = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(self._signed(key, name, address).public_bytes(serialization.Encoding.PEM))
        kept: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            kept = serialization.BestAvailableEncryption(password.encode())
        form = serialization.PrivateFormat.PKCS8
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, kept))
        return str(certificate), str(key_file)

    def _signed(
        self, key: ec.EllipticCurvePrivateKey, name: str, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        return (
            x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(extension, critical=False)
            .sign(self._key, hashes.SHA256())
        )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def asked(url: str, **options: str) -> str:
    return (
        SchemaRegistry.of(RegistryOptions.model_validate({"url": url, **options}), "upstream.registry")
        .by_id(1)
        .text
    )


def refused(url: str, **options: str) -> Fatal:
    with pytest.raises(Fatal) as caught:
        asked(url, **options)
    assert KEY_PASSWORD not in f"{caught.value}{caught.value.__cause__!r}"
    return caught.value


def test_a_certificate_that_nobody_vouches_for_is_refused_until_its_authority_is_named(
    authority: Authority,
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.certificate("server"))
    with running(tls) as toy:
        toy.add("a", TEXT)
        failure = refused(toy.url)
        assert failure.message.startswith(f"{toy.url}: no TLS connection: ")
        with typed(failure) as hint:
            hint.says("check the address, ca, certificate and key in upstream.registry")
            assert asked(toy.url, ca=str(authority.file)) == TEXT
        assert (
            "no TLS connection"
            in refused(toy.url.replace("127.0.0.1", "localhost"), ca=str(authority.file)).message
        )
        assert toy.asked == ["GET /schemas/ids/1"]


def test_a_registry_that_asks_for_a_certificate_gets_it(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "SILENCE_S", 5.0)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.certificate("server"))
    tls.load_verify_locations(authority.file)
    tls.verify_mode = ssl.CERT_REQUIRED
    certificate, key = authority.certificate("client", KEY_PASSWORD)
    ca = str(authority.file)
    with running(tls) as toy:
        toy.add("a", TEXT)
        with pytest.raises((Fatal, Transient)):  # it hangs up, with or without saying why
            asked(toy.url, ca=ca)
        right = {"ca": ca, "certificate": certificate, "key": key, "key_password": KEY_PASSWORD}
        for wrong in (
            {"key_password": "wrong"},
            {"certificate": str(authority.folder / "none.pem")},
            {"ca": key},
            {"key": authority.certificate("other")[1]},
        ):
            failure = refused(toy.url, **{**right, **wrong})
            assert "cannot be used for TLS" in failure.message
            with typed(failure) as hint:
                hint.says("check ca, certificate, key and key_password in upstream.registry")
                assert asked(toy.url, **right) == TEXT
        lacks = {name: value for name, value in right.items() if name != "key_password"}
        assert "cannot be used for TLS" in refused(toy.url, **lacks).message


def test_plain_http_is_no_tls() -> None:
    with running() as toy:
        assert "no TLS connection" in refused(toy.url.replace("http", "https")).message
