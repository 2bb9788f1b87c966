"""Kinds of hardware maps that people write: right ones with their boards, and wrong ones.

In a wrong map, the mark HERE stands before the character whose line and column the error names. It is
no part of the file.
"""

from dataclasses import dataclass, field
from typing import Any

from ternhost import errors

HERE = "»"


@dataclass(frozen=True)
class RightMap:
    """A map, and what is read in it: for each connected board, in order, some of its fields."""

    name: str
    data: bytes
    boards: list[dict[str, Any]]


@dataclass(frozen=True)
class WrongMap:
    """A map with a mistake: the line and the column of its error, from 1, and a word that it names.

    code: the exit code of `tern hil`.
    """

    name: str
    data: bytes
    line: int
    column: int
    names: str
    code: int = errors.USAGE
    beside: dict[str, str] = field(default_factory=dict)  # other files, by their names


RIGHT: list[RightMap] = []
WRONG: list[WrongMap] = []


def _right(name, text, *boards, encoding="utf-8"):
    RIGHT.append(RightMap(name, text.encode(encoding), list(boards)))


def _wrong(name, text, names, *, encoding="utf-8", **more):
    before, mark, after = text.partition(HERE)
    assert mark, name
    lines = before.split("\n")
    data = (before + after).encode(encoding)
    WRONG.append(WrongMap(name, data, len(lines), len(lines[-1]) + 1, names, **more))


def _board(*lines):
    """A map of one board, with further lines."""
    first = "- connected: true\n  id: p1\n  platform: rpi_pico\n"
    if not any("serial:" in line for line in lines):
        first += "  serial: /dev/none\n"
    return first + "".join(f"  {line}\n" for line in lines)


def _with_id(text):
    return f"- connected: true\n  id: {text}\n  platform: rpi_pico\n  serial: /dev/none\n"


# Right maps

_right("plain", _board(), {"id": "p1", "platform": "rpi_pico", "serial": "/dev/none"})
for _id in ("0006", "24:58:07:12:33:40", "1e3", "0x1F", "1_000", "yes", "~1", "2024-01-01", "inf"):
    _right(f"the id {_id}", _with_id(_id), {"id": _id})
_right("an id in quotes", _with_id("'0006'"), {"id": "0006"})
_right("an id with the tag of a text", _with_id("!!str 0006"), {"id": "0006"})
_right("an id with blanks", _with_id("left shelf 2"), {"id": "left shelf 2"})
_right("an id with an umlaut", _with_id("jörg"), {"id": "jörg"})
_right("a word of YAML 1.1 for true", _board().replace("true", "yes"), {"id": "p1"})
_right("capital letters", _board().replace("true", "TRUE"), {"id": "p1"})
_right("a baud rate", _board("baud: 230400"), {"baud": 230400})
_right("empty values", _board("baud:", "fixtures: ~", "notes: null"), {"baud": 115200, "notes": ""})
_right(
    "fixtures", _board("fixtures: [ppk2, 'wifi:lab', 2]"), {"fixtures": ("ppk2", "wifi:lab", "2")}
)
_right(
    "several lines of notes", _board("notes: |", "  left", "  shelf"), {"notes": "left\nshelf\n"}
)
_right("a number as a note", _board("notes: 0006"), {"notes": "0006"})
_right(
    "power by a hub",
    _board("power: {hub: 1-1.4, port: 2}"),
    {"power": ("1-1.4", 2), "has_power_control": True},
)
_right("power by a script", _board("power_script: ./relay.sh 4"), {"power_script": "./relay.sh 4"})
_right("a short name of a port", _board("serial: a0"), {"serial": "/dev/ttyACM0"})
_right(
    "a port on the network", _board("serial: rfc2217://lab:4000"), {"serial": "rfc2217://lab:4000"}
)
_right("an emulated board", "- {connected: true, id: x, platform: pico-emulated}", {"serial": None})
_right(
    "a board that is not connected",
    f"- {{connected: false, id: away, platform: esp32}}\n{_board()}",
    {"id": "p1"},
)
_right("a byte order mark", f"\ufeff{_board()}", {"id": "p1"})
_right("UTF-16", _board(), {"id": "p1"}, encoding="utf-16")
_right("lines that end as in Windows", _board().replace("\n", "\r\n"), {"id": "p1"})
_right("a comment and an end", f"%YAML 1.1\n--- # desk\n{_board()}...\n", {"id": "p1"})
_right(
    "an alias and a merge",
    "- &pico {connected: true, id: p1, platform: rpi_pico, serial: /dev/none, baud: 9600}\n"
    "- {<<: *pico, id: p2, serial: /dev/none2}\n",
    {"id": "p1", "baud": 9600},
    {"id": "p2", "baud": 9600, "serial": "/dev/none2"},
)
_right("several platforms", _board().replace("rpi_pico", "[a/cpu0, b]"), {"platform": "a/cpu0 b"})
_right(
    "expectations",
    _board(
        "expect:",
        "  heap-bytes: 70000",
        "  latency-us: {value: 4.4e3, tolerance: 10%, direction: equal}",
    ),
    {
        "expect": (
            ("heap-bytes", 70000, 0, "lower"),
            ("latency-us", 4400, "10%", "equal"),
        )
    },
)
# As `twister --generate-hardware-map` writes it (hardwaremap.py, save), and with each key of its schema.
_right(
    "a map that twister has made",
    "- connected: true\n  id: '000683759358'\n  platform: unknown\n  product: J-Link\n"
    "  runner: jlink\n  serial: /dev/none\n- connected: false\n  id: null\n  platform: unknown\n"
    "  product: unknown\n  runner: unknown\n  serial: null\n",
    {"id": "000683759358", "serial": "/dev/none", "platform": "unknown"},
)
_right(
    "each key of twister's schema",
    _board(
        "available: true",
        "baud: 115200",
        "fixtures: [a]",
        "flash_before: false",
        "flash_timeout: 60",
        "flash_with_test: true",
        "notes: x",
        "post_flash_script: a.sh",
        "post_script: a.sh",
        "pre_script: a.sh",
        "probe_id: '1'",
        "product: Pico",
        "runner: uf2",
        "runner_params: [--a]",
        "script_param: {pre_script_timeout: 1}",
        "serial_pty: a.sh",
    ),
    {"id": "p1", "fixtures": ("a",)},
)

# Files that are no map

_wrong("an empty file", HERE, "empty")
_wrong("comments alone", f"{HERE}# desk\n", "empty")
_wrong("a word", f"{HERE}boards\n", "list of boards")
_wrong("a table instead of a list", f"{HERE}p1: {{connected: true}}\n", "list of boards")
_wrong("a map of maps", f"{HERE}boards:\n- connected: true\n", "list of boards")
_wrong("a list of texts", f"- {HERE}p1\n- p2\n", "board 1")
_wrong("an empty board", f"{_board()}-{HERE}\n", "board 2")
_wrong("several documents", f"{_board()}{HERE}---\n{_board()}", "document")
_wrong("no board is connected", f"{HERE}- connected: false\n", "connected")
_wrong("a bracket that is not closed", f"- [a\n{HERE}", "YAML")
_wrong("a tab before a key", f"- connected: true\n{HERE}\tid: p1\n", "YAML")
_wrong("quotes that are not closed", f"- connected: true\n  id: 'p1\n{HERE}", "YAML")
_wrong("an unknown alias", f"- connected: {HERE}*yes\n", "alias")
_wrong("a tag of Python", f"- connected: {HERE}!!python/object/apply:os.system [ls]\n", "tag")
_wrong("a tag of its own", f"- id: {HERE}!board p1\n", "tag")
_wrong("a set", f"- {HERE}!!set {{a, b}}\n", "tag")
_wrong("a byte 0", f"- id: {HERE}\x00\n", "U+0000")
_wrong("a control character in quotes", f'- id: {HERE}"a\\x07"\n', "U+0007")
_wrong("half a character in quotes", f'- id: {HERE}"\\ud800"\n', "U+D800")
_wrong("an escape of no character", f'- id: "\\U{HERE}FFFFFFFF"\n', "YAML")
_wrong("deep lists", "-" + 18 * " [" + f" [{HERE}[" + 100_000 * "[", "20")
_LAUGHS = "".join(f"- &{b} [{9 * f'*{a},'}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
_wrong("a billion laughs", f"- {HERE}&a [x, x]\n{_LAUGHS}", "board 1")
_MERGES = "".join(
    f"- &{b} {{<<: [{','.join(9 * [f'*{a}'])}]}}\n"
    for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
_wrong("a billion merges", f"- &a {{{HERE}x: 1}}\n{_MERGES}", "x")
_wrong("a table in itself", f"- {HERE}&a\n  connected: *a\n", "connected")
_wrong("a merge of itself", f"- {HERE}&a {{<<: *a}}\n", "connected")
_wrong("a merge of a text", f"- {{<<: {HERE}x}}\n", "<<")
_wrong("Latin-1", f"- id: p1\n  notes: w{HERE}ärme\n", "UTF-8", encoding="latin-1")

# Keys

_wrong("no key connected", f"- {HERE}id: p1\n  platform: rpi_pico\n", "connected")
_wrong("no id", f"- {HERE}connected: true\n  platform: rpi_pico\n", "id")
_wrong("no platform", f"- {HERE}connected: true\n  id: p1\n", "platform")
_wrong("an unknown key", _board(f"{HERE}colour: red"), "colour")
_wrong("a key with a typing error", _board(f"{HERE}fixture: [ppk2]"), "fixtures")
_wrong("a capital letter in a key", _board(f"{HERE}Baud: 9600"), "baud")
_wrong("a key twice", _board("baud: 9600", f"{HERE}baud: 115200"), "baud")
_wrong("a key that is a list", _board(f"? {HERE}[a]", ": b"), "key")
_wrong("a key twice in power", _board(f"power: {{hub: 1-1, port: 1, {HERE}port: 2}}"), "port")

# Ids

for _id in (
    "../../p1",
    "a/b",
    "/tmp/x",
    "'a\\b'",
    "'..'",
    ".",
    "-p1",
    "' p1'",
    '"a\\nb"',
    "''",
    101 * "x",
):
    _wrong(f"the id {_id[:20]}", _with_id(HERE + _id), "id")
_wrong("an id that is a list", _with_id(f"{HERE}[p1]"), "id")
_wrong("an id that is a table", _with_id(f"{HERE}{{p: 1}}"), "id")
_wrong("an id that is empty", _with_id("~").replace("- c", f"- {HERE}c"), "id")
_wrong("one id twice", _board() + _board("serial: /dev/two").replace("p1", f"{HERE}p1"), "p1")
_wrong(
    "one port twice",
    _board() + _board().replace("p1", "p2").replace("/dev/none", f"{HERE}/dev/none"),
    "/dev/none",
)
_wrong(
    "an id that no board on USB has",
    f"- connected: true\n  id: {HERE}0006\n  platform: rpi_pico\n",
    "'0006'",
    code=errors.NO_DEVICE,
)

# Types of values

for _value in ('"false"', '"true"', "1", "ture", "[true]", "{a: b}", "'on'"):
    _wrong(f"connected: {_value}", f"- connected: {HERE}{_value}\n  id: p1\n", "connected")
for _value in (
    "fast",
    "-9600",
    "9600.5",
    "0",
    "1e5",
    "0x2580",
    "09600",
    "9_600",
    "'9600'",
    "[9600]",
    "1:30",
    "١٢٠٠",
    "²",
    5000 * "9",
):
    _wrong(f"baud: {_value[:20]}", _board(f"baud: {HERE}{_value}"), "baud")
for _value in (
    "[/dev/ttyACM0]",
    "{a: b}",
    "5",
    "ttyACM0",
    "auto",
    "'id:0006'",
    "''",
    "/dev/a,/dev/b",
):
    _wrong(f"serial: {_value}", _board(f"serial: {HERE}{_value}"), "serial")
for _value in ("ppk2", "{ppk2: a}", "true"):
    _wrong(f"fixtures: {_value}", _board(f"fixtures: {HERE}{_value}"), "fixtures")
_wrong("a list as a fixture", _board(f"fixtures: [ppk2, {HERE}[a]]"), "fixtures")
_wrong("an empty fixture", _board(f"fixtures: [ppk2, {HERE}'']"), "fixtures")
_wrong("notes that are a list", _board(f"notes: {HERE}[a]"), "notes")
for _value in ("on", "true", "[1-1, 2]", "1-1"):
    _wrong(f"power: {_value}", _board(f"power: {HERE}{_value}"), "power")
_wrong("power without a port", _board(f"power: {HERE}{{hub: 1-1}}"), "port")
_wrong("power without a hub", _board(f"power: {HERE}{{port: 1}}"), "hub")
_wrong("power at a wrong port", _board(f"power: {{hub: 1-1, port: {HERE}two}}"), "port")
_wrong("power at a wrong hub", _board(f"power: {{hub: {HERE}-all, port: 2}}"), "hub")
_wrong("power with another key", _board(f"power: {{hub: 1-1, port: 2, {HERE}delay: 3}}"), "delay")
_wrong(
    "power in two ways",
    _board("power_script: a.sh", f"power: {HERE}{{hub: 1-1, port: 2}}"),
    "power",
)
_wrong("a script that is a list", _board(f"power_script: {HERE}[a.sh]"), "power_script")
_wrong("a script with a quote", _board(f"power_script: {HERE}./relay's"), "power_script")
for _value in ("[ppk2]", "{ppk2: a1}", "''"):
    _wrong(f"meter: {_value}", _board(f"meter: {HERE}{_value}"), "meter")
_wrong("a platform that is a table", _board().replace("rpi_pico", f"{HERE}{{a: b}}"), "platform")
_wrong(
    "an emulated board that there is not",
    _board().replace("rpi_pico", f"{HERE}pcio-emulated"),
    "pico-emulated",
)
_wrong(
    "an emulated board with another platform",
    _board().replace("rpi_pico", f"{HERE}[pico-emulated, b]"),
    "platform",
)

# Expectations

_wrong("an unknown figure", _board(f"expect: {{{HERE}latency-ms: 4.4}}"), "latency-us")
for _value in ("4.4 ms", "'70000'", "true", "-1", ".nan", ".inf", "1e999", "[1]", "1_000", "٧"):
    _wrong(f"the figure {_value}", _board(f"expect: {{heap-bytes: {HERE}{_value}}}"), "heap-bytes")
_wrong("a list of expectations", _board(f"expect: {HERE}[heap-bytes]"), "expect")
_wrong(
    "an expectation without a value",
    _board(f"expect: {{heap-bytes: {HERE}{{tolerance: 1}}}}"),
    "value",
)
_wrong(
    "a direction",
    _board(f"expect: {{heap-bytes: {{value: 1, direction: {HERE}down}}}}"),
    "direction",
)
_wrong(
    "a tolerance",
    _board(f"expect: {{heap-bytes: {{value: 1, tolerance: {HERE}much}}}}"),
    "tolerance",
)
_wrong(
    "a tolerance below 0",
    _board(f"expect: {{heap-bytes: {{value: 1, tolerance: {HERE}-5%}}}}"),
    "tolerance",
)
_wrong(
    "an unknown key of a figure",
    _board(f"expect: {{heap-bytes: {{value: 1, {HERE}limit: 2}}}}"),
    "limit",
)
_wrong("a missing file of expectations", _board(f"expect: {HERE}pico.yaml"), "pico.yaml")
_wrong("a file with too long a name", _board(f"expect: {HERE}{300 * 'x'}"), "expect")
_wrong("a folder of expectations", _board(f"expect: {HERE}."), "expect")
_wrong(
    "a wrong file of expectations",
    f"{HERE}" + _board("expect: pico.yaml"),
    "pico.yaml",
    beside={"pico.yaml": "[heap-bytes]\n"},
)
