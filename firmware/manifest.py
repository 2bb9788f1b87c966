"""Freezes the client, with all its modules on demand: make BOARD=...

FROZEN_MANIFEST=.../firmware/manifest.py

A manifest of your own takes some of the pieces (package-<piece>.json beside this file) and your
program as main.py. An installed package has this file as ternfirmware/manifest.py, and the library
beside that folder.

    include(".../firmware/manifest.py", pieces="mqtt,app", main=False)
    module("main.py")
"""

import json
import os

options.defaults(pieces="client", main=True)  # noqa: F821 - the manifest's own words

files = set()
for piece in options.pieces.split(","):  # noqa: F821
    with open("package-" + piece.strip() + ".json") as package_of_piece:
        files |= {file.split("/", 1)[1] for file, _ in json.load(package_of_piece)["urls"]}

include("$(PORT_DIR)/boards/manifest.py")  # noqa: F821
# Constants keep their names here; `tern board deploy` folds them in (tools/terntools/boards/fold.py),
# which is smaller.
package("tern", files=sorted(files), base_path="." if os.path.isdir("tern") else "..", opt=3)  # noqa: F821
if options.main:  # noqa: F821
    module("main.py")  # noqa: F821
