"""Vectors of shared_specs/vectors, on every interpreter: in a checkout, an installed package, or on a board."""

import json


def load(name):
    """Return the decoded JSON of vector file `name`."""
    here = __file__.rsplit("/", 1)[0] if "/" in __file__ else "."
    beside = here + "/../../"
    for folder in (beside + "shared_specs/vectors/", beside + "ternspecs/vectors/", here + "/vector_files/"):
        try:
            with open(folder + name) as file:
                return json.load(file)
        except OSError:
            pass
    raise OSError("no vector file " + name)
