"""Frozen into a firmware: make BOARD=... FROZEN_MANIFEST=.../firmware/manifest.py"""

include("$(PORT_DIR)/boards/manifest.py")  # noqa: F821 - the manifest's own words
# Constants keep their names here; `tern deploy` folds them in (tools/terntools/boards/fold.py), which is smaller.
package("tern", opt=3)  # noqa: F821
module("main.py")  # noqa: F821
