"""And into that of a machine with a network."""

include("manifest.py")  # noqa: F821
freeze("wireless")  # noqa: F821
