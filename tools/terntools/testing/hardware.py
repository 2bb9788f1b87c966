"""The boards on a desk that a hardware map lists, and how their power is switched."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from dataclasses import dataclass

from ternhost.errors import DeviceError, UsageError
from ternhost.reach.ports.link import BAUD
from terntools.testing.expectations import Expectation

_OFF_SECONDS = 2.0  # that a board stays without power
_SWITCH_SECONDS = 60.0  # that the command which switches power may take


@dataclass(frozen=True)
class UsbSocket:
    """A socket of a USB hub whose power can be switched, as uhubctl names it.

    hub: such as "1-1.4". port: the number of the socket.
    """

    hub: str
    port: int


@dataclass(frozen=True)
class MappedBoard:
    """A connected board of a hardware map.

    serial: its port; None for an emulated board. baud: the speed of the port. fixtures: what is wired
    to it, by names that tests ask for. notes: for people. power: the USB socket that uhubctl
    switches. power_script: another command that switches its power; it gets "off" or "on" as its
    last argument. meter: the value of --meter of `tern bench energy`. expect: what its figures, such
    as the latency of a report, should be.
    """

    id: str
    platform: str
    serial: str | None
    baud: int = BAUD
    fixtures: tuple[str, ...] = ()
    notes: str = ""
    power: UsbSocket | None = None
    power_script: str | None = None
    meter: str | None = None
    expect: tuple[Expectation, ...] = ()

    @property
    def fleet(self) -> str:
        """What --fleet calls a fleet that has only this board."""
        return f"{self.platform}:1" if self.serial is None else f"port:{self.serial}"

    @property
    def has_power_control(self) -> bool:
        """Whether the map says how to switch the board's power."""
        return bool(self.power or self.power_script)

    def power_cycle(self) -> None:
        """Switch the board off and on again.

        Raises UsageError if the map does not say how, and DeviceError if it fails.
        """
        command = self._power_command()
        self._switch(command, "off")
        time.sleep(_OFF_SECONDS)
        self._switch(command, "on")

    def _power_command(self) -> list[str]:
        """Return the command that switches the board, to which "off" or "on" is to be added.

        Raises UsageError if the map names none, or if uhubctl is not installed.
        """
        if self.power_script:
            return shlex.split(self.power_script)
        if not self.power:
            text = f"the map names no way to switch {self.id}"
            raise UsageError(text, "add power: or power_script: to it")
        if not shutil.which("uhubctl"):
            hint = "install it, or name a power_script in the map"
            raise UsageError("uhubctl is not installed", hint)
        return ["uhubctl", "-l", self.power.hub, "-p", str(self.power.port), "-a"]

    def _switch(self, command: list[str], action: str) -> None:
        """Run the command of `_power_command` with "off" or "on". Raises DeviceError if it fails."""
        try:
            subprocess.run(
                [*command, action],
                check=True,
                capture_output=True,
                text=True,
                timeout=_SWITCH_SECONDS,
            )
        except (OSError, subprocess.SubprocessError) as error:
            reason = str(error)
            # A command that has failed or takes too long may have said why.
            for stream in ("stderr", "stdout"):
                output = getattr(error, stream, None)
                if output:
                    reason = str(output)
                    break
            text = f"cannot switch {self.id} {action}: {reason.strip()}"
            raise DeviceError(text) from error
