"""Machines of a small network: network namespaces of Linux on one bridge, each with its own names.

Names that processes hold on a machine (`ternhost.machine_names`) are those of a namespace as well.
"""

import os
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

_OWN_FILES = Path("/etc/netns")  # whose files `ip netns exec` puts over those of /etc
_NETWORK = "10.77.0"
_SWITCH = "switch"  # the name of the bridge, in the first machine


class SmallNetwork:
    """Machines by their names. The first one also has the bridge."""

    def __init__(self, *names):
        """Start them; skip the test where that is forbidden."""
        if os.geteuid() != 0 or not shutil.which("ip"):
            pytest.skip("only root can make a network of several machines, with the program ip")
        self.spaces = {name: f"tern-{os.getpid()}-{name}" for name in names}
        try:
            for number, name in enumerate(names, 1):
                self._add(name, number)
        except subprocess.CalledProcessError as error:
            self.close()
            pytest.skip(f"no network of several machines can be had: {error.stderr.strip()}")

    def _add(self, name, number):
        """Add a machine: the first one with an address, the others connected to it without one."""
        space = self.spaces[name]
        (_OWN_FILES / space).mkdir(parents=True)
        self.hosts_file(name).write_text("127.0.0.1 localhost\n")
        _ip("netns", "add", space)
        self.ip(name, "link", "set", "lo", "up")
        first = next(iter(self.spaces))
        if name == first:
            self.ip(name, "link", "add", _SWITCH, "type", "bridge")
            self.ip(name, "link", "set", _SWITCH, "up")
            self.ip(name, "address", "add", f"{_NETWORK}.{number}/24", "dev", _SWITCH)
            return
        plug = f"port{number}"
        other_end = ("peer", "name", plug, "netns", self.spaces[first])
        self.ip(name, "link", "add", "eth0", "type", "veth", *other_end)
        self.ip(first, "link", "set", plug, "master", _SWITCH, "up")

    def hosts_file(self, name):
        """The file by which a machine finds others by name."""
        return _OWN_FILES / self.spaces[name] / "hosts"

    def ip(self, name, *words):
        """Run the program ip in a machine."""
        _ip("-netns", self.spaces[name], *words)

    def give_address(self, name, number):
        """Give a machine an address, which it announces to the others; return it."""
        address = f"{_NETWORK}.{number}"
        announce = "echo 1 > /proc/sys/net/ipv4/conf/eth0/arp_notify"
        _run(*self.inside(name), "sh", "-c", announce)
        self.ip(name, "address", "add", f"{address}/24", "dev", "eth0")
        self.ip(name, "link", "set", "eth0", "up")
        for other in self.spaces:  # who may have missed the announcement
            self.ip(other, "neighbour", "flush", "all")
        return address

    def unplug(self, name):
        self.ip(name, "link", "set", "eth0", "down")

    def inside(self, name):
        """The beginning of a command line that runs a program in a machine."""
        return ["ip", "netns", "exec", self.spaces[name]]

    def close(self):
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "delete", space], capture_output=True)
            shutil.rmtree(_OWN_FILES / space, ignore_errors=True)
        with suppress(OSError):  # others may have files there
            _OWN_FILES.rmdir()


def _ip(*words):
    _run("ip", *words)


def _run(*words):
    subprocess.run(words, check=True, capture_output=True, text=True)
