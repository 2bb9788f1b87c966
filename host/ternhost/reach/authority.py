"""Reads the certificate of an authority, by which boards and the host know their broker.

A file may be damaged, or another one that looks like it. A board with a wrong certificate never
reaches its broker, and cannot say why. So the certificate is checked before boards get it.
"""

import re
import ssl
import time

from ternhost.errors import UsageError

_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_PEM_BEGINS = b"-----BEGIN "
_CERTIFICATES = {b"CERTIFICATE", b"X509 CERTIFICATE", b"TRUSTED CERTIFICATE"}
_HINT = (
    "name the broker's authority.pem, as 'tern broker config' or whoever runs the broker made it"
)


def read_der(content: bytes, name: object) -> bytes:
    """Return the certificate of an authority in DER.

    content: of a file with one certificate, in PEM or DER. name: of the file, for messages. Raises
    UsageError unless it is the certificate of an authority that is valid now.
    """
    der = certificate_der(content, name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=der)
    authorities = context.get_ca_certs()  # which leaves out those of servers and clients
    if not authorities:
        raise UsageError(
            f"{name} is the certificate of a server or a client, and not of the authority that "
            "signed it",
            hint=_HINT,
        )
    if context.get_ca_certs(binary_form=True) != [der]:
        raise UsageError(f"{name} has more than a certificate", hint=_HINT)
    now = time.time()
    begin = str(authorities[0]["notBefore"])
    end = str(authorities[0]["notAfter"])
    if now < ssl.cert_time_to_seconds(begin):
        raise UsageError(f"{name} is valid from {begin} only", hint="check the clock, or the file")
    if now > ssl.cert_time_to_seconds(end):
        raise UsageError(
            f"{name} has expired: it was valid until {end}",
            hint="get the new certificate of the authority",
        )
    return der


def certificate_der(content: bytes, name: object) -> bytes:
    """Return the one certificate of a file in DER. The parameters are those of `read_der`.

    Raises UsageError if the file has something else, or more than one certificate.
    """
    blocks = [(match[1], match[0]) for match in _PEM.finditer(content)]
    if not blocks and _PEM_BEGINS in content:
        raise UsageError(f"{name} is cut: a certificate in it has no end", hint=_HINT)
    if any(b"PRIVATE KEY" in kind for kind, _block in blocks):
        raise UsageError(
            f"{name} has a private key, which no other machine and no board may get", hint=_HINT
        )
    certificates = [block for kind, block in blocks if kind in _CERTIFICATES]
    if len(certificates) > 1:
        raise UsageError(
            f"{name} has {len(certificates)} certificates, and a board takes one",
            hint="save the authority's certificate, which signed the broker's, in a file of its own",
        )
    if blocks and not certificates:
        raise UsageError(f"{name} has no certificate, but {_name_of(blocks[0][0])}", hint=_HINT)
    try:
        der = content
        if certificates:
            der = ssl.PEM_cert_to_DER_cert(certificates[0].decode("ascii"))
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=der)
    except (ValueError, ssl.SSLError):  # an SSLError for anything else, such as a cut certificate
        raise UsageError(f"{name} is not a certificate, or a damaged one", hint=_HINT) from None
    return der


def _name_of(kind: bytes) -> str:
    """Return what a block of PEM holds, for people, such as "a certificate request"."""
    return f"a {kind.decode('ascii').lower()}"
