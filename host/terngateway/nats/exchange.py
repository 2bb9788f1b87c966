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
    """The parts in which `data` is sent: at least one."""
    return [data[at : at + PART] for at in range(0, len(data), PART)] or [b""]


def read_reply(data: bytes, expected: int) -> tuple[int, bytes]:
    """The number of parts of the answer, and one of them.

    Raises ValueError unless it has the expected status.
    """
    if len(data) < REPLY.size:
        raise ValueError("a reply of the site is cut off")
    status, count = REPLY.unpack_from(data)
    if status != expected:
        raise ValueError("lost: the site has begun anew")
    if count > MOST_PARTS:
        raise ValueError(f"an answer of {count} parts is longer than {LARGEST} bytes")
    return count, data[REPLY.size :]


def seal_question(key: PrivateKey, site: str, exchange: bytes, question: bytes) -> bytes:
    """The signed question to a site."""
    return _seal(key, (_QUESTION, exchange, site.encode()), question)


def open_question(key: PublicKey, site: str, exchange: bytes, data: bytes) -> bytes:
    """The question. Raises ValueError unless the host signed it for this site and exchange."""
    return _open(key, (_QUESTION, exchange, site.encode()), data)


def seal_answer(
    key: PrivateKey, exchange: bytes, question: bytes, failed: bool, answer: bytes
) -> bytes:
    """The signed answer. failed: it is the text of an error."""
    return _seal(key, (_ANSWERED, exchange, question), bytes((failed,)) + answer)


def open_answer(
    key: PublicKey, exchange: bytes, question: bytes, data: bytes
) -> tuple[bool, bytes]:
    """Whether it is the text of an error, and the answer.

    Raises ValueError unless `key` signed it for `question`.
    """
    answer = _open(key, (_ANSWERED, exchange, question), data)
    return answer[:1] == b"\1", answer[1:]


def _seal(key: PrivateKey, about: Sequence[bytes], data: bytes) -> bytes:
    signature = key.sign(_signed(*about, data), _SIGNATURE)
    return bytes((len(signature),)) + signature + data


def _open(key: PublicKey, about: Sequence[bytes], sealed: bytes) -> bytes:
    end = 1 + sealed[0] if sealed else 1
    try:
        key.verify(sealed[1:end], _signed(*about, sealed[end:]), _SIGNATURE)
    except InvalidSignature as error:
        raise ValueError("not signed") from error
    return sealed[end:]


def _signed(context: bytes, *parts: bytes) -> bytes:
    return context + b"".join(sha256(part).digest() for part in parts)
