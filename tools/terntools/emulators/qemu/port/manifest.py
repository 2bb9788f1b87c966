"""The modules frozen into the firmware of every machine."""

include("$(MPY_DIR)/extmod/asyncio")  # noqa: F821 - the manifest's own words
freeze("modules")  # noqa: F821
