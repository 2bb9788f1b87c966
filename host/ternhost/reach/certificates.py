"""Makes certificates with keys on the curve P-256 for the servers and clients of a fleet.

A fleet has its own certificate authority, which signs the certificates of its brokers, servers and
sites. Boards and the host accept only servers with a certificate of this authority.
"""

import ipaddress
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from ternhost.errors import StorageError
from ternhost.files import storage_errors, write_file
from ternhost.guides import guide
from ternhost.reach.addresses import AUTHORITY, DEVICE_AUTHORITY, is_address
from ternhost.text import counted

PrivateKey = ec.EllipticCurvePrivateKey
PublicKey = ec.EllipticCurvePublicKey

_AUTHORITY_KEY = "authority.key"
_SERVED = ("broker.pem", AUTHORITY)  # the certificates that boards and hosts check

_DAY = 86_400.0  # seconds
SOON = 30 * _DAY
"""So many seconds before it expires, a certificate is warned of and renewed."""

# A certificate is valid between these dates. They lie far apart since a board without a clock
# starts in 2000 (ESP32) or in the year of its firmware, and checks them nevertheless.
_NOT_BEFORE = datetime(1970, 1, 1)
_NOT_AFTER = datetime(2049, 12, 31)


def write_certificates(directory: Path, names: Sequence[str], kind: str = "broker") -> None:
    """Write the key and the certificate of a server, and an authority to sign it if there is none.

    directory: gets the files. names: the host names and addresses of the server. kind: what
    it is, such as "broker"; the names of its files begin with this word.
    """
    key_path = directory / _AUTHORITY_KEY
    is_written = (directory / AUTHORITY).exists() and (directory / DEVICE_AUTHORITY).exists()
    if not is_written:
        if key_path.exists():  # an earlier call was interrupted
            key = private_key(key_path)
        else:
            key = write_key(key_path)
        _write_authority(directory, _authority_certificate(f"tern {kind} authority", key))
    _write_certificate(directory, names, signer=directory, kind=kind)


def expiries(directory: Path) -> dict[str, float]:
    """Return until when the certificates of a broker or a server are valid, by their file names.

    The times are in seconds since 1970. Files that are missing, or are no certificates, are left
    out: those who use them say so.
    """
    times = {}
    for name in _SERVED:
        with suppress(OSError, ValueError):
            certificate = x509.load_pem_x509_certificate((directory / name).read_bytes())
            times[name] = certificate.not_valid_after_utc.timestamp()
    return times


def expiry_warnings(directory: Path) -> list[str]:
    """Return a warning for each certificate of a broker that expires soon, or has expired."""
    warnings = []
    for name, expires in expiries(directory).items():
        seconds_left = expires - time.time()
        if seconds_left > SOON:
            continue
        if seconds_left < 0:
            when = "has expired: boards and the host connect to it no more"
        else:
            when = f"expires in {counted(int(seconds_left / _DAY), 'day')}"
        way = f"renew it: tern broker config {directory}"
        if name == AUTHORITY:
            way = f"boards need a new one: {guide('operate.md')} tells the order of the steps"
        warnings.append(f"{directory / name} {when}; {way}")
    return warnings


def must_be_renewed(directory: Path, signer: Path) -> bool:
    """Return whether a broker's certificate expires soon, or is not of the present authority.

    directory: the broker's directory. signer: that of the authority. The result is False, too, if
    tern cannot sign another one, since somebody else has made the certificates.
    """
    if not (signer / _AUTHORITY_KEY).exists():
        return False
    try:
        certificate = x509.load_pem_x509_certificate((directory / "broker.pem").read_bytes())
        authority = x509.load_pem_x509_certificate((signer / AUTHORITY).read_bytes())
    except (OSError, ValueError):
        return True
    expires = certificate.not_valid_after_utc.timestamp()
    if expires - time.time() < SOON:
        return True
    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return True
    return False


def write_site_certificates(directory: Path, names: Sequence[str], central: Path) -> None:
    """Write the certificate of a site's broker, its key, and the authority's certificate.

    directory: the directory of the site, which gets the files. names: the host names and addresses
    of its broker. central: the directory with the key of the authority, which stays there.
    Raises StorageError if that key is missing.
    """
    if not (central / _AUTHORITY_KEY).exists():
        raise StorageError(
            f"{central} lacks {_AUTHORITY_KEY}", hint=f"make it: tern broker config {central}"
        )
    _write_authority(directory, x509.load_pem_x509_certificate((central / AUTHORITY).read_bytes()))
    _write_certificate(directory, names, signer=central, kind="broker")


def write_key(path: Path) -> PrivateKey:
    """Write a new private key to a file that only its owner may read. Raises OSError."""
    key = ec.generate_private_key(ec.SECP256R1())
    encoded = key.private_bytes(
        encoding=Encoding.PEM,
        format=serialization.PrivateFormat.PKCS8,
        encryption_algorithm=serialization.NoEncryption(),
    )
    write_file(path, encoded, secret=True)
    return key


def private_key(path: Path) -> PrivateKey:
    """Read the key that `write_key` has written. Raises StorageError."""
    try:
        with storage_errors():
            key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except ValueError as error:
        raise StorageError(f"{path} is not a private key") from error
    assert isinstance(key, PrivateKey)
    return key


def client_certificate(name: str, key: PublicKey, signer: Path) -> bytes:
    """Return a certificate in PEM with which a client, but no server, can identify itself.

    name: the name of the client. key: its public key. signer: the directory of the authority that
    signs.
    """
    # Without host names it is not accepted as the certificate of a server.
    certificate = _sign(name, key, host_names=(), signer=signer)
    return certificate.public_bytes(Encoding.PEM)


def names_of(certificate: Path) -> list[str]:
    """Return the host names and addresses in the certificate of a broker, in order.

    Raises OSError if the file cannot be read, ValueError if it is no certificate.
    """
    loaded = x509.load_pem_x509_certificate(certificate.read_bytes())
    alternatives = loaded.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(name.value) for name in alternatives.value]


def _write_authority(directory: Path, authority: x509.Certificate) -> None:
    """Write the authority's certificate in PEM for hosts, and in DER for boards."""
    write_file(directory / AUTHORITY, authority.public_bytes(Encoding.PEM))
    write_file(directory / DEVICE_AUTHORITY, authority.public_bytes(Encoding.DER))


def _write_certificate(directory: Path, names: Sequence[str], signer: Path, kind: str) -> None:
    """Write a new key and the certificate of a server.

    directory: gets the files. names: the host names and addresses of the server. signer: the
    directory of the authority that signs. kind: the word with which the names of the files begin.
    """
    key = write_key(directory / f"{kind}.key")
    certificate = _sign(names[0], key.public_key(), host_names=names, signer=signer)
    write_file(directory / f"{kind}.pem", certificate.public_bytes(Encoding.PEM))


def _sign(name: str, key: PublicKey, host_names: Sequence[str], signer: Path) -> x509.Certificate:
    """Make a certificate of a server or a client, signed by the authority of a directory.

    name: the subject of the certificate. key: the public key that it is about. host_names: the
    host names and addresses of a server; none for a client. signer: the authority's directory.
    """
    authority = x509.load_pem_x509_certificate((signer / AUTHORITY).read_bytes())
    authority_key = private_key(signer / _AUTHORITY_KEY)
    builder = _builder(_subject(name), authority.subject, key, authority_key)
    constraints = x509.BasicConstraints(ca=False, path_length=None)
    builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(_key_usage(signing=False), critical=True)
    if host_names:
        alternatives = [_alternative_name(host) for host in host_names]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    else:
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        builder = builder.add_extension(usage, critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _authority_certificate(name: str, key: PrivateKey) -> x509.Certificate:
    """Make the certificate of an authority, which is signed with its own key."""
    subject = _subject(name)
    builder = _builder(subject, issuer=subject, key=key.public_key(), issuer_key=key)
    # It may sign certificates, but no further authorities (a path of length 0).
    constraints = x509.BasicConstraints(ca=True, path_length=0)
    builder = builder.add_extension(constraints, critical=True)
    builder = builder.add_extension(_key_usage(signing=True), critical=True)
    return builder.sign(key, hashes.SHA256())


def _builder(
    subject: x509.Name, issuer: x509.Name, key: PublicKey, issuer_key: PrivateKey
) -> x509.CertificateBuilder:
    """Begin a certificate with the parts that all certificates have.

    subject, key: whose certificate it is. issuer, issuer_key: the authority that will sign it.
    """
    builder = x509.CertificateBuilder()
    builder = builder.subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(_NOT_BEFORE).not_valid_after(_NOT_AFTER)

    # With the ids of the two keys, verifiers find the certificate of the authority.
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
    """Return what a key may be used for: either to sign certificates, or in TLS handshakes.

    signing: the key is that of an authority, which signs certificates and lists of revoked ones.
    """
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
