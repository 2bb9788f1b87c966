"""Certificates on P-256: a fleet's authority, and those of its brokers, or of NATS servers, sites
and their host.
"""

import ipaddress
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ternhost.errors import StorageError
from ternhost.files import storage_errors, write_file
from ternhost.reach.addresses import AUTHORITY, DEVICE_AUTHORITY, is_address

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

_AUTHORITY_KEY = "authority.key"

# A board without a clock starts in 2000 (ESP32) or in the year of its firmware, and checks these
# dates nevertheless.
_NOT_BEFORE = datetime(1970, 1, 1)
_NOT_AFTER = datetime(2049, 12, 31)


def write_certificates(directory: Path, names: Sequence[str], of: str = "broker") -> None:
    """Write the fleet's authority and a certificate on P-256, which boards can check. of: names the
    server's files.
    """
    path = directory / _AUTHORITY_KEY
    written = (directory / AUTHORITY).exists() and (directory / DEVICE_AUTHORITY).exists()
    if not written:  # or an earlier call was interrupted
        key = private_key(path) if path.exists() else write_key(path)
        _write_authority(
            directory, _certificate(f"tern {of} authority", key.public_key(), key, None, ())
        )
    _write_certificate(directory, names, directory, of)


def write_site_certificates(directory: Path, names: Sequence[str], central: Path) -> None:
    """Write the authority, whose key stays in `central`, and a certificate of a site's broker.

    Raises StorageError.
    """
    if not (central / _AUTHORITY_KEY).exists():
        raise StorageError(
            f"{central} lacks {_AUTHORITY_KEY}", hint=f"make it: tern broker config {central}"
        )
    _write_authority(directory, x509.load_pem_x509_certificate((central / AUTHORITY).read_bytes()))
    _write_certificate(directory, names, central, "broker")


def write_key(path: Path) -> PrivateKey:
    """Write a new private key, for its owner alone. Raises OSError."""
    key = ec.generate_private_key(ec.SECP256R1())
    form, encryption = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    write_file(path, key.private_bytes(Encoding.PEM, form, encryption), secret=True)
    return key


def private_key(path: Path) -> PrivateKey:
    """The key that `write_key` has written. Raises StorageError."""
    try:
        with storage_errors():
            key = serialization.load_pem_private_key(path.read_bytes(), None)
    except ValueError as error:
        raise StorageError(f"{path} is not a private key") from error
    assert isinstance(key, PrivateKey)
    return key


def client_certificate(name: str, key: PublicKey, signer: Path) -> bytes:
    """In PEM, the certificate of a client, with which nobody can be a server. signer: directory of
    the authority.
    """
    return _signed(name, key, (), signer).public_bytes(Encoding.PEM)


def names_of(certificate: Path) -> list[str]:
    """The host names and addresses that a broker's certificate carries, in order.

    Raises OSError and ValueError.
    """
    extensions = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions
    return [
        str(name.value)
        for name in extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    ]


def _write_authority(directory: Path, authority: x509.Certificate) -> None:
    write_file(directory / AUTHORITY, authority.public_bytes(Encoding.PEM))
    write_file(directory / DEVICE_AUTHORITY, authority.public_bytes(Encoding.DER))


def _write_certificate(directory: Path, names: Sequence[str], signer: Path, of: str) -> None:
    certificate = _signed(names[0], write_key(directory / f"{of}.key").public_key(), names, signer)
    write_file(directory / f"{of}.pem", certificate.public_bytes(Encoding.PEM))


def _signed(name: str, key: PublicKey, names: Sequence[str], signer: Path) -> x509.Certificate:
    authority = x509.load_pem_x509_certificate((signer / AUTHORITY).read_bytes())
    return _certificate(name, key, private_key(signer / _AUTHORITY_KEY), authority.subject, names)


def _certificate(
    name: str, key: PublicKey, signer: PrivateKey, issuer: x509.Name | None, names: Sequence[str]
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing = issuer is None
    number = x509.random_serial_number()
    builder = x509.CertificateBuilder(
        issuer or subject, subject, key, number, _NOT_BEFORE, _NOT_AFTER
    )
    extensions: list[tuple[x509.ExtensionType, bool]] = [  # (extension, critical)
        (x509.BasicConstraints(signing, 0 if signing else None), True),
        (x509.SubjectKeyIdentifier.from_public_key(key), False),
        (x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), False),
        (
            x509.KeyUsage(not signing, False, False, False, False, signing, signing, False, False),
            True,
        ),
    ]
    if names:
        alternatives = [
            x509.IPAddress(ipaddress.ip_address(name)) if is_address(name) else x509.DNSName(name)
            for name in names
        ]
        extensions.append((x509.SubjectAlternativeName(alternatives), False))
    elif not signing:
        extensions.append((x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False))
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, hashes.SHA256())
