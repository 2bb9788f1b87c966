"""What the makers of vectors share: keys, cases, packed symbols, frames under a key, and the form of the files."""

import hashlib
import json
import zlib

KEY = bytes(range(32))
KEY_B = hashlib.sha256(b"another key").digest()


def write(path, notes, **groups):
    """Write lists of cases, a case a line."""
    parts = []
    for group, tests in groups.items():
        lines = ",\n".join("  " + json.dumps(test) for test in tests)
        parts.append(f' "{group}": [\n{lines}\n ]')
    path.write_text(f'{{"notes": {json.dumps(notes)},\n' + ",\n".join(parts) + "}\n")


def case(comment, result, flags=(), **fields):
    return {"comment": comment, "flags": list(flags), **fields, "result": result}


def packed(symbols, base):
    number = sum(s * base**i for i, s in enumerate(symbols))
    return number.to_bytes(((base ** len(symbols) - 1).bit_length() + 7) // 8, "little")


def sealed(key, data):
    return data + hashlib.sha256(key + data).digest()[:8]


def checked_ledger(data):
    """A ledger with its check: protocol 1 had a hash."""
    return sealed(b"", data) if data.startswith(b"TLG1") else data + zlib.crc32(data).to_bytes(4, "little")
