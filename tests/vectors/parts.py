"""Keys, cases and the form of the files, for all makers of vectors."""

import hashlib
import json
from pathlib import Path

VECTORS = Path(__file__).parents[2] / "shared_specs" / "vectors"
KEY = bytes(range(32))
KEY_B = hashlib.sha256(b"another key").digest()


def write(path, notes, **groups):
    """Write a file of vectors: groups of cases, one case a line."""
    parts = []
    for group, tests in groups.items():
        lines = ",\n".join("  " + json.dumps(test) for test in tests)
        parts.append(f' "{group}": [\n{lines}\n ]')
    path.write_text(f'{{"notes": {json.dumps(notes)},\n' + ",\n".join(parts) + "}\n")


def case(comment, result, flags=(), **fields):
    """A case, with its bytes in hexadecimal digits."""
    fields = {
        name: value.hex() if isinstance(value, bytes | bytearray) else value
        for name, value in fields.items()
    }
    return {"comment": comment, "flags": list(flags), **fields, "result": result}


def stream(comment, n):
    """n bytes that the comment determines: SHA-256 in counter mode."""
    return b"".join(hashlib.sha256(f"{comment} {i}".encode()).digest() for i in range(n // 32 + 1))[
        :n
    ]
