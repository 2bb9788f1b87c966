"""Frozen into a firmware: make BOARD=... FROZEN_MANIFEST=.../firmware/manifest.py

In an installed package it is ternfirmware/manifest.py, and the library lies beside that folder.
"""

import os

include("$(PORT_DIR)/boards/manifest.py")  # noqa: F821 - the manifest's own words
# Constants keep their names here; `tern deploy` folds them in (tools/terntools/boards/fold.py), which is smaller.
package("tern", base_path="." if os.path.isdir("tern") else "..", opt=3)  # noqa: F821
module("main.py")  # noqa: F821
