"""The hardware map: which boards are on the desk, in the shape of Zephyr's twister; and their
power.

firmware/BOARDS.md describes it. The keys power, power_script, meter and expect are tern's own.
"""

import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ternhost import extras
from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports import names
from ternhost.reach.ports.link import BAUD
from terntools.emulators import catalogue
from terntools.testing import expectations
from terntools.testing.expectations import Expectation

_KEYS = {
    "connected",
    "id",
    "platform",
    "serial",
    "baud",
    "fixtures",
    "notes",
    "power",
    "power_script",
    "product",
    "meter",
    "expect",
    "runner",
    "available",
    "probe_id",
    "pre_script",
    "post_script",
}
_OFF_SECONDS = 2.0


@dataclass(frozen=True)
class MappedBoard:
    id: str
    platform: str
    serial: str | None
    baud: int = BAUD
    fixtures: tuple[str, ...] = ()
    notes: str = ""
    power: dict[str, Any] = field(default_factory=dict)
    power_script: str | None = None
    meter: dict[str, Any] = field(default_factory=dict)
    expect: tuple[Expectation, ...] = ()

    @property
    def fleet(self) -> str:
        """The board as a fleet of one."""
        return f"{self.platform}:1" if self.serial is None else f"port:{self.serial}"

    @property
    def has_power_control(self) -> bool:
        return bool(self.power or self.power_script)

    def power_cycle(self) -> None:
        """Switch the board off and on again.

        Raises UsageError where the map names no way to, and DeviceError.
        """
        if self.power_script:
            command = shlex.split(self.power_script)
        elif not self.power:
            raise UsageError(
                f"the map names no way to switch {self.id}", "add power: or power_script: to it"
            )
        elif shutil.which("uhubctl"):
            command = ["uhubctl", "-l", str(self.power["hub"]), "-p", str(self.power["port"]), "-a"]
        else:
            raise UsageError(
                "uhubctl is not installed", hint="install it, or name a power_script in the map"
            )
        for action in ("off", "on"):
            try:
                subprocess.run(
                    [*command, action], check=True, capture_output=True, text=True, timeout=60
                )
            except (OSError, subprocess.SubprocessError) as error:
                said = f"{getattr(error, 'stderr', None) or getattr(error, 'stdout', None) or error}".strip()
                raise DeviceError(f"cannot switch {self.id} {action}: {said}") from error
            if action == "off":
                time.sleep(_OFF_SECONDS)


def read_map(path: str | Path) -> list[MappedBoard]:
    """The connected boards of a map. Raises UsageError."""
    entries = _load(Path(path))
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(
            f"{path} is not a hardware map", hint="see firmware/BOARDS.md for its format"
        )
    boards = [_board(entry, path) for entry in entries if entry.get("connected")]
    if len({board.id for board in boards}) < len(boards):
        raise UsageError(f"{path} has two boards of one id")
    if not boards:
        raise UsageError(f"{path} has no connected board", hint="set connected: true")
    return boards


def _load(path: Path) -> Any:
    extras.require("yaml")
    import yaml

    try:
        return yaml.safe_load(path.read_text())
    except OSError as error:
        raise UsageError(
            f"cannot read {path}: {error.strerror}", hint="see firmware/BOARDS.md"
        ) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _board(entry: dict[str, Any], path: str | Path) -> MappedBoard:
    name = entry.get("id") or entry.get("serial") or "?"
    where = f"{path}, board {name}"
    if unknown := sorted(set(entry) - _KEYS):
        raise UsageError(
            f"{where}: there is no {unknown[0]!r}", hint=f"there are {', '.join(sorted(_KEYS))}"
        )
    platform = entry.get("platform")
    if not isinstance(platform, str) or not entry.get("id"):
        raise UsageError(f"{where}: id and platform are missing")
    serial = entry.get("serial")
    if serial is None and catalogue.name_of(platform) is None:
        serial = names.resolve(f"id:{entry['id']}")
    power, meter, expect = (
        entry.get("power") or {},
        entry.get("meter") or {},
        entry.get("expect", {}),
    )
    if power and not ("hub" in power and "port" in power):
        raise UsageError(
            f"{where}: power needs hub and port", hint="such as power: {hub: 1-1, port: 2}"
        )
    if not isinstance(meter, dict):
        raise UsageError(
            f"{where}: meter has options of tern bench energy", hint="meter: {meter: ppk2}"
        )
    if isinstance(expect, str):
        expect = _load(Path(path).parent / expect)
    return MappedBoard(
        str(entry["id"]),
        platform,
        serial,
        int(entry.get("baud", BAUD)),
        tuple(entry.get("fixtures") or ()),
        str(entry.get("notes", "")),
        power,
        entry.get("power_script"),
        meter,
        expectations.parse(expect, where),
    )
