"""The unit with which systemd runs a command of tern as a service."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ternhost import errors
from ternhost.long_running import ServiceNeeds

USER = "tern"
"""The user and the group of all services of tern."""

STATE = Path("/var/lib/tern")
"""The directory that all services work in, with brokers, stores and runs."""

UNITS = Path("/etc/systemd/system")
"""Where the units are written."""

# Devices of boards at ports: USB CDC, and the chips that turn USB into a serial port.
_PORT_DEVICES = ("char-ttyACM", "char-ttyUSB")
_PORT_GROUP = "dialout"
# With these exit codes a further start would end in the same way: somebody has to do something.
_FINAL_CODES = (errors.USAGE, errors.REFUSED, errors.SHORT)
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_@+=:,./-]+")


@dataclass(frozen=True)
class Unit:
    """A service: its name, and what systemd has to know about it.

    interpreter: of Python, with tern installed. arguments: the words after `tern`. needs: what the
    command needs. writable: directories outside of STATE that it writes to. after: the names of
    units that are started before it.
    """

    name: str
    interpreter: Path
    arguments: Sequence[str]
    needs: ServiceNeeds
    writable: Sequence[Path] = ()
    after: Sequence[str] = ()

    @property
    def file(self) -> Path:
        """Where the unit is written."""
        return UNITS / unit_name(self.name)

    @property
    def text(self) -> str:
        """The unit, as systemd reads it."""
        command = [str(self.interpreter), "-P", "-m", "ternhost", *self.arguments]
        before = " ".join(["network-online.target", *self.after])
        lines = [
            f"# Written by: tern service install {self.name}",
            "[Unit]",
            f"Description={_escaped(' '.join(['tern', *self.arguments]))}",
            f"Wants={before}",
            f"After={before}",
            "",
            "[Service]",
            "Type=notify",
            f"ExecStart={' '.join(quoted(word) for word in command)}",
            f"User={USER}",
            f"Group={USER}",
            f"SyslogIdentifier=tern-{self.name}",
            f"WorkingDirectory={STATE}",
            f"StateDirectory={STATE.name}",
            "StateDirectoryMode=0750",
            "UMask=0077",
            "",
            "# A crash restarts it. A wrong option, or devices that all refuse, would end it again.",
            "Restart=on-failure",
            "RestartSec=5",
            f"RestartPreventExitStatus={' '.join(map(str, _FINAL_CODES))}",
            f"SuccessExitStatus={errors.TERMINATED}",
            "",
            "# tern ends its present step, then the programs that it has started, such as Mosquitto.",
            "KillMode=mixed",
            "KillSignal=SIGTERM",
            "TimeoutStopSec=120",
            "TimeoutStartSec=300",
            "",
            "# What it may do.",
            *self._hardening(),
            "",
            "[Install]",
            "WantedBy=multi-user.target",
        ]
        return "\n".join(lines) + "\n"

    def _hardening(self) -> list[str]:
        """Return the lines that keep the service away from what it does not need."""
        lines = [
            "NoNewPrivileges=yes",
            "CapabilityBoundingSet=",
            "ProtectSystem=strict",
            "ProtectHome=yes",
            "PrivateTmp=yes",
            "ProtectProc=invisible",
            "ProtectClock=yes",
            "ProtectControlGroups=yes",
            "ProtectHostname=yes",
            "ProtectKernelLogs=yes",
            "ProtectKernelModules=yes",
            "ProtectKernelTunables=yes",
            "RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX",
            "RestrictNamespaces=yes",
            "RestrictRealtime=yes",
            "RestrictSUIDSGID=yes",
            "LockPersonality=yes",
            "RemoveIPC=yes",
            "SystemCallArchitectures=native",
            "SystemCallFilter=@system-service",
        ]
        if self.needs.ports:
            lines.append("DevicePolicy=closed")
            lines += [f"DeviceAllow={device} rw" for device in _PORT_DEVICES]
            lines.append(f"SupplementaryGroups={_PORT_GROUP}")
        else:
            lines.append("PrivateDevices=yes")
        lines += [f"ReadWritePaths={quoted(str(path))}" for path in self.writable]
        return lines


def unit_name(name: str) -> str:
    """Return the name of the unit of a service."""
    return f"tern-{name}.service"


def quoted(word: str) -> str:
    """Return a word of a command line as systemd reads it back: in quotes where that is needed."""
    if _PLAIN_WORD.fullmatch(word):
        return word
    text = word.replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{_escaped(text)}"'


def _escaped(text: str) -> str:
    """Return a text in which systemd finds no specifier, which begins with a percent sign."""
    return text.replace("%", "%%")
