"""librdkafka's security settings as kafka-python's: mapped exactly or refused, never dropped."""

import importlib.machinery
import importlib.util
import socket
import ssl
import sys
import threading
import types
from pathlib import Path

import pytest
import trustme

from tidegate.connectors.kafka.connection import Connection
from tidegate.errors import InvalidError


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def authority_file(authority: trustme.CA, tmp_path: Path) -> Path:
    path = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(path)
    return path


def context_of(settings: dict[str, str | bool]) -> ssl.SSLContext:
    context = Connection("a:1", {"security.protocol": "ssl", **settings}).kafka_python_config()["ssl_context"]
    assert isinstance(context, ssl.SSLContext)
    return context


def shake_hands(
    client: ssl.SSLContext, server_identity: trustme.LeafCert, host: str, authority: trustme.CA | None = None
) -> str | None:
    """Let a server with this identity and the client greet each other; the common name of the client's certificate.
    With an authority, the server demands a certificate of it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_identity.configure_cert(server)
    if authority is not None:
        authority.configure_trust(server)
        server.verify_mode = ssl.CERT_REQUIRED
    here, there = socket.socketpair()
    names: list[str | None] = []

    def serve() -> None:
        try:
            with server.wrap_socket(there, server_side=True) as stream:
                certificate = stream.getpeercert() or {}
                stream.sendall(b"x")
            names.append(str(certificate.get("subjectAltName")))
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=host) as stream:
            if not stream.recv(1):
                raise ssl.SSLError("refused")
    finally:
        here.close()
        thread.join()
    return names[0]


# ---- TLS -----------------------------------------------------------------------------------------------------------


def test_without_security_settings_the_connection_is_plain() -> None:
    config = Connection("a:1,[::1]:2", {"linger.ms": 5}).kafka_python_config()
    assert config == {
        "bootstrap_servers": ["a:1", "[::1]:2"],
        "client_id": "tidegate",
        "security_protocol": "PLAINTEXT",
    }


def test_the_socket_timeout_is_that_of_requests() -> None:
    assert Connection("a:1", {"socket.timeout.ms": 3000}).kafka_python_config()["request_timeout_ms"] == 3000


def test_a_server_is_trusted_by_the_authority_in_a_file(authority: trustme.CA, authority_file: Path) -> None:
    context = context_of({"ssl.ca.location": str(authority_file)})
    shake_hands(context, authority.issue_cert("broker.example"), "broker.example")


def test_a_server_is_trusted_by_the_authority_in_a_text(authority: trustme.CA) -> None:
    context = context_of({"ssl.ca.pem": authority.cert_pem.bytes().decode()})
    shake_hands(context, authority.issue_cert("broker.example"), "broker.example")


def test_a_server_of_another_authority_is_not_trusted(authority: trustme.CA, authority_file: Path) -> None:
    for context in (context_of({"ssl.ca.location": str(authority_file)}), context_of({})):
        with pytest.raises(ssl.SSLCertVerificationError):
            shake_hands(context, trustme.CA().issue_cert("broker.example"), "broker.example")


def test_a_server_with_another_name_is_not_trusted_unless_names_are_not_looked_at(
    authority: trustme.CA, authority_file: Path
) -> None:
    settings: dict[str, str | bool] = {"ssl.ca.location": str(authority_file)}
    identity = authority.issue_cert("broker.example")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(context_of(settings), identity, "other.example")
    shake_hands(context_of(settings | {"ssl.endpoint.identification.algorithm": "none"}), identity, "other.example")


def test_verification_can_be_switched_off() -> None:
    context = context_of({"enable.ssl.certificate.verification": False})
    shake_hands(context, trustme.CA().issue_cert("broker.example"), "other.example")


def test_a_certificate_and_key_in_files_identify_the_client(
    authority: trustme.CA, authority_file: Path, tmp_path: Path
) -> None:
    identity = authority.issue_cert("client.example")
    identity.cert_chain_pems[0].write_to_path(tmp_path / "certificate.pem")
    identity.private_key_pem.write_to_path(tmp_path / "key.pem")
    settings: dict[str, str | bool] = {"ssl.ca.location": str(authority_file)}
    certificate = {
        "ssl.certificate.location": str(tmp_path / "certificate.pem"),
        "ssl.key.location": str(tmp_path / "key.pem"),
    }
    server = authority.issue_cert("broker.example")
    name = shake_hands(context_of(settings | certificate), server, "broker.example", authority)
    assert "client.example" in str(name)
    with pytest.raises((ssl.SSLError, OSError)):
        shake_hands(context_of(settings), server, "broker.example", authority)


def test_a_certificate_and_an_encrypted_key_in_texts_identify_the_client(
    authority: trustme.CA, authority_file: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    identity = authority.issue_cert("client.example")
    key = serialization.load_pem_private_key(identity.private_key_pem.bytes(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"hush"),
    )
    settings: dict[str, str | bool] = {
        "ssl.ca.location": str(authority_file),
        "ssl.certificate.pem": identity.cert_chain_pems[0].bytes().decode(),
        "ssl.key.pem": encrypted.decode(),
        "ssl.key.password": "hush",
    }
    server = authority.issue_cert("broker.example")
    assert "client.example" in str(shake_hands(context_of(settings), server, "broker.example", authority))
    for wrong in ("other", ""):
        with pytest.raises(InvalidError, match=r"'ssl\.certificate' cannot be used") as raised:
            context_of(settings | {"ssl.key.password": wrong})
        assert "hush" not in str(raised.value)


def test_the_cipher_suites_are_those_of_the_settings() -> None:
    context = context_of({"ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"})
    older = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] != "TLSv1.3"]
    assert older == ["ECDHE-RSA-AES256-GCM-SHA384"]


def test_revoked_certificates_are_looked_up_in_the_list(authority_file: Path) -> None:
    context = context_of({"ssl.ca.location": str(authority_file), "ssl.crl.location": str(authority_file)})
    assert ssl.VERIFY_CRL_CHECK_LEAF in context.verify_flags


@pytest.mark.parametrize("name", ["ssl.ca.location", "ssl.crl.location"])
def test_a_file_that_is_not_there_is_named_by_its_setting(name: str) -> None:
    with pytest.raises(InvalidError, match=f"'{name}' cannot be used: FileNotFoundError"):
        context_of({name: "nowhere.pem"})


# ---- SASL ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_user_and_password_are_passed_on(mechanism: str, name: str) -> None:
    settings = {
        "security.protocol": "sasl_plaintext",
        name: mechanism,
        "sasl.username": "app",
        "sasl.password": "hush",
    }
    config = Connection("a:1", settings).kafka_python_config()
    assert config.items() >= {
        ("security_protocol", "SASL_PLAINTEXT"),
        ("sasl_mechanism", mechanism),
        ("sasl_plain_username", "app"),
        ("sasl_plain_password", "hush"),
    }


@pytest.mark.parametrize("missing", ["sasl.username", "sasl.password"])
def test_a_missing_user_or_password_is_named(missing: str) -> None:
    settings = {"security.protocol": "sasl_ssl", "sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    settings.pop(missing)
    with pytest.raises(InvalidError, match=f"the SASL mechanism 'PLAIN' needs '{missing}'"):
        Connection("a:1", settings).kafka_python_config()


def test_both_libraries_take_kerberos_when_no_mechanism_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    package = types.ModuleType("gssapi")
    package.__spec__ = importlib.machinery.ModuleSpec("gssapi", None)
    monkeypatch.setitem(sys.modules, "gssapi", package)
    settings = {"security.protocol": "sasl_ssl", "sasl.kerberos.service.name": "broker", "sasl.kerberos.keytab": "k"}
    config = Connection("a:1", settings).kafka_python_config()
    assert config["sasl_mechanism"] == "GSSAPI"
    assert config["sasl_kerberos_service_name"] == "broker"


def test_kerberos_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InvalidError, match="'GSSAPI' needs the package gssapi"):
        Connection("a:1", {"security.protocol": "sasl_ssl"}).kafka_python_config()


@pytest.mark.parametrize(
    "settings",
    [
        {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"},
        {"sasl.oauthbearer.method": "oidc"},
        {"enable.sasl.oauthbearer.unsecure.jwt": True},
        {"ssl.keystore.location": "k.p12"},
        {"ssl.engine.location": "engine.so"},
        {"ssl.providers": "default,legacy"},
        {"ssl.curves.list": "P-256"},
        {"ssl.sigalgs.list": "ECDSA+SHA256"},
        {"https.ca.location": "ca.pem"},
    ],
)
def test_what_kafka_python_cannot_do_is_refused_and_not_dropped(settings: dict[str, str | bool]) -> None:
    with pytest.raises(InvalidError, match="cannot be used with exactly-once sinks") as raised:
        Connection("a:1", settings).kafka_python_config()
    assert str(list(settings.values())[-1]) in str(raised.value) or list(settings)[-1] in str(raised.value)


def test_an_unknown_protocol_is_named() -> None:
    with pytest.raises(InvalidError, match=r"security\.protocol='TLS' is none of PLAINTEXT, SSL"):
        Connection("a:1", {"security.protocol": "tls"}).kafka_python_config()
