"""Vectors of shared_specs/vectors, on every interpreter: in a checkout, an installed package, or on a board."""

import json


def load(name):
    """Return the decoded JSON of vector file `name`."""
    with _open(name) as file:
        return json.load(file)


def cases(name, key):
    """The cases of one list of a vector file, one after the other: for a file that a board's heap does not hold."""
    with _open(name) as file:
        wanted = False
        for line in file:
            if line.startswith("  {"):
                if wanted:
                    yield json.loads(line[: line.rindex("}") + 1])
            else:
                wanted = line.startswith(' "' + key + '": [')


def _open(name):
    here = __file__.rsplit("/", 1)[0] if "/" in __file__ else "."
    beside = here + "/../../"
    for folder in (beside + "shared_specs/vectors/", beside + "ternspecs/vectors/", here + "/vector_files/"):
        try:
            return open(folder + name)
        except OSError:
            pass
    raise OSError("no vector file " + name)
