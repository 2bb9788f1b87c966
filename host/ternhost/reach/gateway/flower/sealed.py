"""What a question and its answer look like on their way: the answer is signed with the key of the site.

Flower knows who connects, but takes a site's word for whom an answer is from: a site could answer for another one. So a
question carries a nonce, and the answer a signature over both, which the host checks with the key that it registered.
"""

from __future__ import annotations

import hashlib

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

NONCE = 16  # bytes, before each question

_CONTEXT = b"tern answer 1\n"  # a site's key signs other things for Flower, and none begins like this


def seal(key: ec.EllipticCurvePrivateKey, asked: bytes, failed: bool, answer: bytes) -> bytes:
    """The answer as it travels: whether it is the text of an error, the signature with its length, and `answer`."""
    signature = key.sign(_signed(asked, failed, answer), ec.ECDSA(hashes.SHA256()))
    return bytes((failed, len(signature))) + signature + answer


def unseal(key: ec.EllipticCurvePublicKey, asked: bytes, data: bytes) -> tuple[bool, bytes]:
    """Whether it is the text of an error, and the answer. Raises ValueError unless `key` has signed it for `asked`."""
    if len(data) < 2 or len(data) < 2 + data[1] or data[0] > 1:
        raise ValueError("too short")
    failed, end = bool(data[0]), 2 + data[1]
    try:
        key.verify(data[2:end], _signed(asked, failed, data[end:]), ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise ValueError("not signed") from error
    return failed, data[end:]


def _signed(asked: bytes, failed: bool, answer: bytes) -> bytes:
    parts = (asked[:NONCE], hashlib.sha256(asked).digest(), bytes((failed,)), hashlib.sha256(answer).digest())
    return _CONTEXT + b"".join(parts)
