"""A listener of the shared broker that requires TLS and a password: its keys and its one user."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from broker import Broker

from backfill_cli.spark.java import find_java

USER, PASSWORD = "reader", "open-sesame-7c1d"
_KEYS = "changeit"
_CERTIFICATE = "certificate.pem"


def listener(folder: Path) -> Mapping[str, str]:
    """Settings of the broker's second listener; its key and certificate, made here, stay in `folder`."""
    store = folder / "broker.p12"
    keytool = [str(find_java(os.environ).path.with_name("keytool"))]
    keytool += ["-keystore", str(store), "-storetype", "PKCS12", "-storepass", _KEYS, "-alias", "broker"]
    own = ["-genkeypair", "-keyalg", "RSA", "-validity", "2", "-dname", "CN=127.0.0.1", "-ext", "SAN=IP:127.0.0.1"]
    for wanted in (own, ["-exportcert", "-rfc", "-file", str(folder / _CERTIFICATE)]):
        subprocess.run([*keytool, *wanted], check=True, capture_output=True, stdin=subprocess.DEVNULL)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "plain.sasl.jaas.config": f'{login} user_{USER}="{PASSWORD}";',
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(store),
        "ssl.keystore.password": _KEYS,
    }


def properties(broker: Broker, **other: str) -> dict[str, str]:
    """What a client needs to be let in; other: with `_` for `.`, in their place."""
    told = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(broker.folder / _CERTIFICATE),
    }
    return told | {name.replace("_", "."): value for name, value in other.items()}
