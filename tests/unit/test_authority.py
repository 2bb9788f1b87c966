"""A file is checked for the certificate of an authority before boards get it."""

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

from ternhost.errors import UsageError
from ternhost.reach import authority
from ternhost.reach.addresses import AUTHORITY, DEVICE_AUTHORITY
from ternhost.reach.certificates import write_certificates

NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The directory of an authority and of a server whose certificate it has signed."""
    directory = tmp_path_factory.mktemp("authority")
    write_certificates(directory, ["localhost"])
    return directory


@pytest.fixture(scope="module")
def pem(files):
    return (files / AUTHORITY).read_bytes()


@pytest.fixture(scope="module")
def der(files):
    return (files / DEVICE_AUTHORITY).read_bytes()


def authority_between(begin, end):
    """An authority's certificate in PEM that is valid between two times."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an authority")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(key.public_key()).serial_number(7)
    builder = builder.not_valid_before(begin).not_valid_after(end)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


def key_in(encoding):
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(encoding, PrivateFormat.PKCS8, NoEncryption())


def public_key():
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    return key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def request():
    """A certificate request in PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a server")])
    key = ec.generate_private_key(ec.SECP256R1())
    builder = x509.CertificateSigningRequestBuilder().subject_name(name)
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)


GOOD = {
    "PEM": lambda pem, der: pem,
    "DER": lambda pem, der: der,
    "PEM after a description": lambda pem, der: b"Certificate:\n  Version: 3\n" + pem,
    "PEM with line ends of Windows": lambda pem, der: pem.replace(b"\n", b"\r\n"),
    "PEM with a byte order mark": lambda pem, der: "\ufeff".encode() + pem,
    "PEM without a line end": lambda pem, der: pem.strip(),
}
BAD = {
    "nothing": lambda pem, der: b"",
    "a table": lambda pem, der: b"0.1,0.2,1\n",
    "a key in PEM": lambda pem, der: key_in(Encoding.PEM),
    "a key in DER": lambda pem, der: key_in(Encoding.DER),
    "a public key": lambda pem, der: public_key(),
    "a certificate and a key": lambda pem, der: pem + key_in(Encoding.PEM),
    "a request": lambda pem, der: request(),
    "a cut DER": lambda pem, der: der[:200],
    "a DER without its last byte": lambda pem, der: der[:-1],
    "a DER with more behind it": lambda pem, der: der + b"\0",
    "a cut PEM": lambda pem, der: pem[: len(pem) // 2],
    "a PEM without a line": lambda pem, der: b"\n".join(
        pem.splitlines()[:2] + pem.splitlines()[3:]
    ),
    "two certificates": lambda pem, der: pem + pem,
    "a PEM that is not Base64": lambda pem, der: pem.replace(b"MII", b"!!!"),
    "PEM in UTF-16": lambda pem, der: pem.decode().encode("utf-16"),
    "one that has expired": lambda pem, der: authority_between(NOW - 2 * DAY, NOW - DAY),
    "one of next week": lambda pem, der: authority_between(NOW + 6 * DAY, NOW + 9 * DAY),
}


@pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
def test_the_certificate_of_an_authority_is_taken(pem, der, content):
    assert authority.read_der(content(pem, der), "a file") == der


@pytest.mark.parametrize("content", BAD.values(), ids=BAD)
def test_anything_else_is_refused(pem, der, content):
    with pytest.raises(UsageError, match="a file"):
        authority.read_der(content(pem, der), "a file")


@pytest.mark.parametrize("encoding", ["PEM", "DER"])
def test_the_certificate_of_the_server_itself_is_refused(files, encoding):
    content = (files / "broker.pem").read_bytes()
    if encoding == "DER":
        content = ssl.PEM_cert_to_DER_cert(content.decode())
    with pytest.raises(UsageError, match="signed it"):
        authority.read_der(content, "a file")
