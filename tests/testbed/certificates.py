"""A certificate authority for one control plane, made new each time and thrown away with it."""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates for servers and clients of one control plane."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("equipoise-testbed", ())
        self.certificate = folder / "ca.crt"
        own = self._signed(self._name, self._key.public_key(), is_authority=True)
        _write_certificate(self.certificate, own)

    def issue(
        self, file_name: str, common_name: str, organizations: Iterable[str] = (), hosts: Iterable[str] = ()
    ) -> Pair:
        """Sign a certificate that will do for a server at `hosts` and for a client of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._folder / f"{file_name}.crt", self._folder / f"{file_name}.key")
        subject = _name(common_name, organizations)
        _write_key(pair.key, key)
        _write_certificate(pair.certificate, self._signed(subject, key.public_key(), hosts=hosts))
        return pair

    def signing_key(self, file_name: str) -> Path:
        """Make a bare key, for service account tokens."""
        path = self._folder / f"{file_name}.key"
        _write_key(path, ec.generate_private_key(ec.SECP256R1()))
        return path

    def _signed(
        self,
        subject: x509.Name,
        public: ec.EllipticCurvePublicKey,
        *,
        hosts: Iterable[str] = (),
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=is_authority), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
        )
        if not is_authority:
            purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        names = [_general_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _name(common_name: str, organizations: Iterable[str]) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, text) for text in organizations]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
