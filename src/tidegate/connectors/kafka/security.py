"""librdkafka's TLS and SASL settings as kafka-python's, so that both libraries connect as one user.

What has no counterpart is refused and never ignored: a connection that is weaker than the one asked for must not be
made, and one that cannot be made must not be tried for half a minute.
"""

import importlib.util
import ssl
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidegate.errors import InvalidError

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PASSWORD_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
DEFAULT_MECHANISM = "GSSAPI"
DEFAULT_KERBEROS_SERVICE = "kafka"

_TICKET_CACHE = frozenset({
    "sasl.kerberos.keytab", "sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal",
})  # fmt: skip
"""How librdkafka fills the ticket cache, which kafka-python only reads."""

_MAPPED = _TICKET_CACHE | {
    "enable.ssl.certificate.verification", "sasl.kerberos.service.name", "sasl.mechanism", "sasl.mechanisms",
    "sasl.password", "sasl.username", "security.protocol", "ssl.ca.location", "ssl.ca.pem",
    "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites", "ssl.crl.location",
    "ssl.endpoint.identification.algorithm", "ssl.key.location", "ssl.key.password", "ssl.key.pem",
}  # fmt: skip

_INSTEAD: Mapping[str, str] = {
    "ssl.keystore.location": "Give ssl.certificate.location and ssl.key.location (PEM) instead.",
    "ssl.keystore.password": "Give ssl.certificate.location and ssl.key.location (PEM) instead.",
    "ssl.ca.certificate.stores": "Give ssl.ca.location instead.",
}


def kafka_python_config(settings: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments of kafka-python. Raises InvalidError for what it cannot do and for files that it cannot use."""
    for name in sorted(settings):
        if _concerns_security(name) and name not in _MAPPED:
            raise _refused(f"{name!r}", _INSTEAD.get(name, ""))
    protocol = settings.get("security.protocol", "plaintext").upper()
    if protocol not in PROTOCOLS:
        raise InvalidError(f"settings: security.protocol={protocol!r} is none of {', '.join(PROTOCOLS)}")
    config: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        config["ssl_context"] = _tls(settings)
    if protocol.startswith("SASL"):
        config |= _sasl(settings)
    return config


def _concerns_security(name: str) -> bool:
    return name.startswith(("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl.")) or name == "security.protocol"


def _refused(what: str, remedy: str) -> InvalidError:
    return InvalidError(
        f"settings: {what} cannot be used with exactly-once sinks: transactions are administered through kafka-python, "
        "which has no counterpart",
        remedy=remedy,
    )


def _sasl(settings: Mapping[str, str]) -> dict[str, Any]:
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", DEFAULT_MECHANISM)).strip()
    if mechanism in PASSWORD_MECHANISMS:
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": _needed(settings, "sasl.username", mechanism),
            "sasl_plain_password": _needed(settings, "sasl.password", mechanism),
        }
    if mechanism != DEFAULT_MECHANISM:
        raise _refused(f"the SASL mechanism {mechanism!r}", f"Give one of {', '.join(PASSWORD_MECHANISMS)}, GSSAPI.")
    if importlib.util.find_spec("gssapi") is None:
        raise InvalidError("settings: the SASL mechanism 'GSSAPI' needs the package gssapi", remedy="Install it.")
    service = settings.get("sasl.kerberos.service.name", DEFAULT_KERBEROS_SERVICE)
    return {"sasl_mechanism": mechanism, "sasl_kerberos_service_name": service}


def _needed(settings: Mapping[str, str], name: str, mechanism: str) -> str:
    if not settings.get(name):
        raise InvalidError(f"settings: the SASL mechanism {mechanism!r} needs {name!r}")
    return settings[name]


def _tls(settings: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    verified = settings.get("enable.ssl.certificate.verification", "true").lower() != "false"
    context.check_hostname = verified and settings.get("ssl.endpoint.identification.algorithm", "https") != "none"
    context.verify_mode = ssl.CERT_REQUIRED if verified else ssl.CERT_NONE
    _trust(context, settings)
    _identify(context, settings)
    if "ssl.cipher.suites" in settings:
        _using("ssl.cipher.suites", lambda: context.set_ciphers(settings["ssl.cipher.suites"]))
    return context


def _trust(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    location, pem = settings.get("ssl.ca.location"), settings.get("ssl.ca.pem")
    if location and location != "probe":
        folder = Path(location).is_dir()
        places = {"capath": location} if folder else {"cafile": location}
        _using("ssl.ca.location", lambda: context.load_verify_locations(**places))
    if pem:
        _using("ssl.ca.pem", lambda: context.load_verify_locations(cadata=pem))
    if not pem and (not location or location == "probe"):
        context.load_default_certs()
    if "ssl.crl.location" in settings:
        _using("ssl.crl.location", lambda: context.load_verify_locations(cafile=settings["ssl.crl.location"]))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _identify(context: ssl.SSLContext, settings: Mapping[str, str]) -> None:
    password = settings.get("ssl.key.password", "")
    with tempfile.TemporaryDirectory() as folder:
        certificate = _place(Path(folder), settings, "ssl.certificate")
        if certificate is None:
            return
        key = _place(Path(folder), settings, "ssl.key")
        # The password must be given, even when empty: without one OpenSSL asks at the terminal.
        _using("ssl.certificate", lambda: context.load_cert_chain(certificate, key, lambda: password))


def _place(folder: Path, settings: Mapping[str, str], name: str) -> str | None:
    """Where the PEM file is. One given as text is put into `folder`, which only this user can read: OpenSSL's Python
    interface takes certificates and keys from files alone."""
    if f"{name}.pem" not in settings:
        return settings.get(f"{name}.location")
    path = folder / name
    path.write_text(settings[f"{name}.pem"])
    return str(path)


def _using(name: str, load: Callable[[], None]) -> None:
    try:
        load()
    except (OSError, ValueError) as error:  # includes ssl.SSLError
        raise InvalidError(f"settings: {name!r} cannot be used: {type(error).__name__}: {error}") from None
