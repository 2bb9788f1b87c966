"""Answers signed by sites. Flower authenticates connections, but a site could answer for another one: so a question
carries a nonce, and the answer a signature over both, which the host checks with the site's registered key.
"""

from __future__ import annotations

from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

NONCE = 16  # bytes, before each question

_CONTEXT = b"tern answer 1\n"  # nothing that the site's key signs for Flower begins like this


def seal(key: ec.EllipticCurvePrivateKey, question: bytes, failed: bool, answer: bytes) -> bytes:
    """The signed answer: whether it is the text of an error, the signature with its length, and `answer`."""
    signature = key.sign(_signed(question, failed, answer), ec.ECDSA(hashes.SHA256()))
    return bytes((failed, len(signature))) + signature + answer


def unseal(key: ec.EllipticCurvePublicKey, question: bytes, data: bytes) -> tuple[bool, bytes]:
    """Whether it is the text of an error, and the answer. Raises ValueError unless `key` signed it for `question`."""
    if len(data) < 2 or len(data) < 2 + data[1] or data[0] > 1:
        raise ValueError("too short")
    failed, end = bool(data[0]), 2 + data[1]
    try:
        key.verify(data[2:end], _signed(question, failed, data[end:]), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise ValueError("not signed") from error
    return failed, data[end:]


def _signed(question: bytes, failed: bool, answer: bytes) -> bytes:
    digest = sha256(question).digest()
    return _CONTEXT + question[:NONCE] + digest + bytes((failed,)) + sha256(answer).digest()
