"""Names that columns often have, as `plain` writes them, by what they then hold."""

import re

LABELS = {
    "label",
    "class",
    "class_code",
    "target",
    "y",
    "outcome",
    "activity",
    "species",
    "diagnosis",
}
DEVICES = {
    "device",
    "board",
    "node",
    "sensor",
    "station",
    "site",
    "home",
    "house",
    "household",
    "room",
    "user",
    "person",
    "subject",
    "participant",
    "patient",
    "owner",
    "client",
    "member",
}
TIMES = {"t", "time", "timestamp", "date", "datetime", "date_time", "day", "ts"}
IDS = {"id", "index", "row", "no", "nr", "number", "uuid", "unnamed:_0"}


def plain(name: str) -> str:
    """Return the name of a column as it is compared with usual ones."""
    return re.sub(r"\W+", "_", name.casefold()).strip("_")


def is_of_column(text: str) -> bool:
    """Return whether a cell of a table is hardly anything but the name of a column.

    Letters such as y and words such as home may be categories, too.
    """
    name = plain(text)
    return len(name) > 2 and name in LABELS | TIMES
