"""Keys, cases and the form of the files, for all makers of vectors.

A maker of frames and files writes all of its vectors. The others compute the expected results for
the inputs that a file has: to add a case, write its comment and inputs into the file, and run the
maker.
"""

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


def computed(name, **results):
    """The content of the vector file `name`, with the expected results computed anew.

    results: for each group that has any, a function from a case to its expected fields.
    """
    vectors = json.loads((VECTORS / name).read_text())
    for group, expected in results.items():
        vectors[group] = [test | in_hex(expected(test)) for test in vectors[group]]
    return vectors


def in_hex(fields):
    """The fields, with bytes in hexadecimal digits."""
    return {
        name: value.hex() if isinstance(value, bytes | bytearray) else value
        for name, value in fields.items()
    }


def case(comment, result, flags=(), **fields):
    """A case, with its bytes in hexadecimal digits."""
    return {"comment": comment, "flags": list(flags), **in_hex(fields), "result": result}
