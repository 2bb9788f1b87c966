"""Certificates on P-256: of a fleet's authority, brokers, NATS servers, sites and their host."""

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
    """Write the fleet's authority, if it has none, and the certificate of a server.

    names: the server's host names and addresses. of: the name of its files.
    """
    path = directory / _AUTHORITY_KEY
    is_written = (directory / AUTHORITY).exists() and (directory / DEVICE_AUTHORITY).exists()
    if not is_written:
        if path.exists():  # an earlier call was interrupted
            key = private_key(path)
        else:
            key = write_key(path)
        _write_authority(directory, _authority_certificate(f"tern {of} authority", key))
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
    """Read the key that `write_key` has written. Raises StorageError."""
    try:
        with storage_errors():
            key = serialization.load_pem_private_key(path.read_bytes(), None)
    except ValueError as error:
        raise StorageError(f"{path} is not a private key") from error
    assert isinstance(key, PrivateKey)
    return key


def client_certificate(name: str, key: PublicKey, signer: Path) -> bytes:
    """Return the certificate of a client in PEM; nobody can be a server with it.

    key: of the client. signer: the directory of the authority that signs it.
    """
    return _sign(name, key, (), signer).public_bytes(Encoding.PEM)


def names_of(certificate: Path) -> list[str]:
    """Return the host names and addresses in the certificate of a broker, in order.

    Raises OSError if the file cannot be read, ValueError if it is no certificate.
    """
    extensions = x509.load_pem_x509_certificate(certificate.read_bytes()).extensions
    alternatives = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in alternatives.value]


def _write_authority(directory: Path, authority: x509.Certificate) -> None:
    write_file(directory / AUTHORITY, authority.public_bytes(Encoding.PEM))
    write_file(directory / DEVICE_AUTHORITY, authority.public_bytes(Encoding.DER))


def _write_certificate(directory: Path, names: Sequence[str], signer: Path, of: str) -> None:
    """Write a new key and the certificate of a server; see `write_certificates`."""
    key = write_key(directory / f"{of}.key")
    certificate = _sign(names[0], key.public_key(), names, signer)
    write_file(directory / f"{of}.pem", certificate.public_bytes(Encoding.PEM))


def _sign(name: str, key: PublicKey, names: Sequence[str], signer: Path) -> x509.Certificate:
    """Make a certificate, signed by the authority in the directory `signer`.

    name: the subject. names: the host names and addresses of a server; none for a client.
    """
    authority = x509.load_pem_x509_certificate((signer / AUTHORITY).read_bytes())
    authority_key = private_key(signer / _AUTHORITY_KEY)
    builder = _builder(_subject(name), authority.subject, key, authority_key)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_key_usage(signing=False), critical=True)
    if names:
        alternatives = [_alternative_name(host) for host in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    else:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _authority_certificate(name: str, key: PrivateKey) -> x509.Certificate:
    """Make the certificate of an authority, signed by its own key."""
    builder = _builder(_subject(name), _subject(name), key.public_key(), key)
    builder = builder.add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(_key_usage(signing=True), critical=True)
    return builder.sign(key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, issuer_key: PrivateKey
) -> x509.CertificateBuilder:
    """Begin a certificate with the parts that all certificates have."""
    builder = x509.CertificateBuilder()
    builder = builder.subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(_NOT_BEFORE).not_valid_after(_NOT_AFTER)
    subject_id = x509.SubjectKeyIdentifier.from_public_key(key)
    builder = builder.add_extension(subject_id, critical=False)
    issuer_id = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return builder.add_extension(issuer_id, critical=False)


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative_name(name: str) -> x509.GeneralName:
    if is_address(name):
        return x509.IPAddress(ipaddress.ip_address(name))
    return x509.DNSName(name)


def _key_usage(signing: bool) -> x509.KeyUsage:
    """Return the usage of a key: an authority's (`signing`) signs certificates, no other does."""
    return x509.KeyUsage(
        digital_signature=not signing,
        key_cert_sign=signing,
        crl_sign=signing,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
