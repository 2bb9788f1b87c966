"""Each frame, field and event that can be seen of a device is in the table of
shared_specs/storage.md, and no other.
"""

import re
from pathlib import Path

from tern import wire

PAGE = Path(__file__).parents[2] / "shared_specs" / "storage.md"
EVENTS = (Path(__file__).parents[1] / "integration" / "world.py").read_text()


def table():
    """By what can be seen, the names of its fields and events."""
    text = PAGE.read_text().partition("## What leaves a device")[2].partition("\nLimits of this")[0]
    names: dict[str, list[str]] = {}
    what = ""
    for row in re.findall(r"^\| ([^|]*)\| ([^|]*)\| [^|\n]+ \|$", text, re.M)[1:]:
        what = row[0].strip() or what
        names.setdefault(what, []).extend(re.findall(r"`(\w+)(?:\(\))?`", row[1]))
    return names


KINDS = ("HELLO", "REPORT", "REPORTS", "ERROR", "UPDATED")


def fields_of_frames():
    """The fields of each kind of frame that a device sends, by the schema of the library."""
    name_by_kind = {getattr(wire, name): name for name in KINDS}
    fields = {}
    for line in wire.schema_text().splitlines():
        # A frame of a device: its kind, from 80 on, then a format and its fields.
        frame = re.fullmatch(r"([89a-f][0-9a-f]) <\w+ (.*)", line)
        if frame:
            kind, names = frame.groups()
            without_sizes = re.sub(r":\w|\*\w+", "", names)
            fields[name_by_kind[int(kind, 16)]] = sorted(re.findall(r"[a-z]+", without_sizes))
    return fields


def test_every_field_of_every_frame_of_a_device_is_in_the_table():
    names_in_table = table()
    assert fields_of_frames() == {kind: sorted(names_in_table[kind]) for kind in KINDS}


def test_every_event_of_the_emulated_world_is_in_the_table():
    """A table in the specification lists all that an observer can see of a device. The emulated
    world of the integration tests records events: each is in the table, and the table has no
    others, but for the return of `once`, a function of the library.
    """
    names_in_table = table()
    events = set()
    for what in ("link", "port", "radio", "board"):
        events.update(names_in_table[what])
    constants = re.findall(r"^(?:EVENTS|PACKETS) = (.*?)[)}]", EVENTS, re.MULTILINE | re.DOTALL)
    events_of_world = set(re.findall(r'"(\w+)"', " ".join(constants)))
    assert events - {"once"} == events_of_world
