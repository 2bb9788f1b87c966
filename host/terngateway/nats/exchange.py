"""A question and its answer over NATS, whose messages are small: each is cut into parts.

Every message is a request of the host with one reply of the site, on the subject `ask`:

    request  kind u8 (0 PING, 1 PUT, 2 GET) | exchange 16 bytes | number u32 | parts u32 | part of
    the question (PUT) reply    status u8 (0 GO_ON, 1 ANSWER, 2 LOST) | parts u32 | part of the
    answer (ANSWER)

The host PUTs the parts of a question one after the other; the last one is replied to with the first
part of the answer, and the host GETs the others. A PING of an exchange that the site does not know
is LOST. Both sides sign what they send, so a NATS server can neither ask nor answer.
"""

import struct
from collections.abc import Sequence
from hashlib import sha256

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from terngateway.post import LARGEST
from ternhost.reach.certificates import PrivateKey, PublicKey

SUBJECT = "ask"
ID = 16  # bytes of an exchange's name, which the host draws
REQUEST = struct.Struct(f"<B{ID}sII")
REPLY = struct.Struct("<BI")
PING, PUT, GET = range(3)
GO_ON, ANSWER, LOST = range(3)
MOST_PAYLOAD = 1 << 16  # bytes of a message
PART = MOST_PAYLOAD - REQUEST.size
MOST_PARTS = LARGEST // PART + 1

_SIGNATURE = ec.ECDSA(hashes.SHA256())
_QUESTION, _ANSWERED = b"tern question 1\n", b"tern answer 1\n"


def parts_of(data: bytes) -> list[bytes]:
    """Return the parts in which `data` is sent: at least one, which may be empty."""
    if not data:
        return [b""]
    return [data[start : start + PART] for start in range(0, len(data), PART)]


def read_reply(data: bytes, expected: int) -> tuple[int, bytes]:
    """Return the number of parts of an answer, and the part in this reply.

    Raises ValueError unless the reply has the expected status.
    """
    if len(data) < REPLY.size:
        raise ValueError("a reply of the site is cut off")
    status, count = REPLY.unpack_from(data)
    if status != expected:
        raise ValueError("lost: the site has started again")
    if count > MOST_PARTS:
        raise ValueError(f"an answer of {count} parts is longer than {LARGEST} bytes")
    return count, data[REPLY.size :]


def seal_question(key: PrivateKey, site: str, exchange: bytes, question: bytes) -> bytes:
    """Sign a question to a site for one exchange."""
    return _seal(key, (_QUESTION, exchange, site.encode()), question)


def open_question(key: PublicKey, site: str, exchange: bytes, data: bytes) -> bytes:
    """Return the question in `data`.

    Raises ValueError unless the host signed it for this site and exchange.
    """
    return _open(key, (_QUESTION, exchange, site.encode()), data)


def seal_answer(
    key: PrivateKey, exchange: bytes, question: bytes, failed: bool, answer: bytes
) -> bytes:
    """Sign the answer to a question. failed: the answer is the text of an error."""
    return _seal(key, (_ANSWERED, exchange, question), bytes((failed,)) + answer)


def open_answer(
    key: PublicKey, exchange: bytes, question: bytes, data: bytes
) -> tuple[bool, bytes]:
    """Return whether the handler has failed, and the answer, which is then the text of the error.

    Raises ValueError unless `key` signed it for `question`.
    """
    answer = _open(key, (_ANSWERED, exchange, question), data)
    return answer[:1] == b"\1", answer[1:]


def _seal(key: PrivateKey, context: Sequence[bytes], data: bytes) -> bytes:
    """Return the length of a signature, the signature of context and data, and the data."""
    signature = key.sign(_signed_bytes(*context, data), _SIGNATURE)
    return bytes((len(signature),)) + signature + data


def _open(key: PublicKey, context: Sequence[bytes], sealed: bytes) -> bytes:
    """Return the data that `_seal` has signed. Raises ValueError for any other bytes."""
    end = 1 + sealed[0] if sealed else 1  # of the signature, whose length is the first byte
    signature, data = sealed[1:end], sealed[end:]
    try:
        key.verify(signature, _signed_bytes(*context, data), _SIGNATURE)
    except InvalidSignature as error:
        raise ValueError("not signed") from error
    return data


def _signed_bytes(purpose: bytes, *parts: bytes) -> bytes:
    """Return what is signed: the purpose, and a hash of each part, so that none runs into the next."""
    return purpose + b"".join(sha256(part).digest() for part in parts)
