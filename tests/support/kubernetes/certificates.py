"""Certificates for tests, made on the spot."""

from __future__ import annotations

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM."""

    cert: bytes
    key: bytes

    def files(self, folder: Path, name: str) -> tuple[Path, Path]:
        cert_path, key_path = folder / f"{name}.crt", folder / f"{name}.key"
        cert_path.write_bytes(self.cert)
        key_path.write_bytes(self.key)
        return cert_path, key_path


def authority(name: str = "test CA") -> Pair:
    return _issue(name, None, is_ca=True)


def issue(ca: Pair, name: str, *, names: tuple[str, ...] = (), end: dt.datetime = NOW + DAY) -> Pair:
    return _issue(name, ca, is_ca=False, names=names, end=end)


def _issue(
    name: str,
    ca: Pair | None,
    *,
    is_ca: bool,
    names: tuple[str, ...] = (),
    end: dt.datetime = NOW + DAY,
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.load_pem_x509_certificate(ca.cert).subject if ca else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW - 2 * DAY)
        .not_valid_after(end)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_name(n) for n in names]), critical=False
        )
    signer = serialization.load_pem_private_key(ca.key, None) if ca else key
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    signed = builder.sign(signer, hashes.SHA256())
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    return Pair(signed.public_bytes(pem), key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


def _name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def serving(pair: Pair, folder: Path, *, client_ca: Pair | None = None) -> ssl.SSLContext:
    """A server's TLS context; with a client CA, it asks for a client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair.files(folder, "server"))
    if client_ca is not None:
        context.load_verify_locations(cadata=client_ca.cert.decode())
        context.verify_mode = ssl.CERT_REQUIRED
    return context
