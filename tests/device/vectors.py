"""Vectors of shared_specs/vectors, on every interpreter.

They are found in a checkout, an installed package, or on a board.
"""

import gc
import json

# The fields of a ROUND in the order of the frame, as vectors and the decoded message name them.
ROUND_FIELDS = (
    "device",
    "round",
    "model",
    "range",
    "exponent",
    "classes",
    "d",
    "k",
    "batch",
    "epochs",
    "rate",
    "tau",
)


def _open(name):
    """Return the open vector file `name`."""
    here = __file__.rsplit("/", 1)[0] if "/" in __file__ else "."
    root = here + "/../../"
    for folder in (
        root + "shared_specs/vectors/",
        root + "ternspecs/vectors/",
        here + "/vector_files/",
    ):
        try:
            return open(folder + name)
        except OSError:
            pass
    raise OSError("no vector file " + name)


def load(name):
    """Return the decoded JSON of vector file `name`."""
    with _open(name) as file:
        return json.load(file)


def cases(name, group="tests"):
    """Yield the cases of a group of vector file `name`, one at a time.

    A vector file has a case a line. Raises ValueError if the group has none.
    """
    with _open(name) as file:
        inside = False
        found = False
        for line in file:
            if line.startswith(' "'):
                inside = line.startswith(' "%s"' % group)
            elif inside and line.startswith("  {"):
                gc.collect()  # room for a second copy
                case = json.loads(line.rstrip(",\n"))
                line = None  # a long line takes much of a board's heap
                found = True
                yield case
                case = None  # before the next line is read
        if not found:
            raise ValueError("no cases of %s in %s" % (group, name))
