"""Certificates for a Kafka with TLS: an authority of the test's own, a server's identity and a client's."""

from pathlib import Path
from typing import NamedTuple

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tidegate.deploy.dev_kafka import TlsFiles


class Certificates(NamedTuple):
    server: TlsFiles
    """Wants a certificate of every client."""
    authority: dict[str, str]
    """librdkafka's settings of a client that trusts the server and has no certificate."""
    client: dict[str, str]
    """The same with a certificate."""


def make_certificates(folder: Path) -> Certificates:
    authority = trustme.CA()
    authority_file = folder / "authority.pem"
    authority.cert_pem.write_to_path(str(authority_file))
    server, client = folder / "server.pem", folder / "client.pem"
    _write_identity(authority.issue_cert("127.0.0.1"), server)
    _write_identity(authority.issue_cert("client.example"), client)
    trusting = {"security.protocol": "SSL", "ssl.ca.location": str(authority_file)}
    own = {"ssl.key.location": str(client), "ssl.certificate.location": str(client)}
    return Certificates(TlsFiles(server, authority_file), trusting, trusting | own)


def _write_identity(certificate: trustme.LeafCert, file: Path) -> None:
    """Kafka reads private keys in PKCS 8 only."""
    key = load_pem_private_key(certificate.private_key_pem.bytes(), password=None)
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + chain)
