"""Host names and addresses of servers, and the names of the files of their authority.

The authority is the certificate authority of a fleet, which signs its servers' certificates.
"""

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Sequence

from ternhost.errors import UsageError

AUTHORITY = "authority.pem"
DEVICE_AUTHORITY = "authority.der"  # the same certificate for boards, which read no PEM
HERE = {"localhost", "127.0.0.1", "::1"}  # names that mean another machine on each machine
# For an address that stands for all interfaces, the address at which this machine is reached.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}

_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?")  # a part of a name between dots
_NUMBER = re.compile(r"\d+|0[xX][0-9A-Fa-f]*")
_LONGEST_NAME = 63  # characters; a certificate's common name takes one more


def check_reached(names: Sequence[str], address: str, port: int) -> None:
    """Raise UsageError unless a server can have these names and listen there.

    names: the host names or addresses at which clients reach the server. address, port: where it
    listens.
    """
    for name in (*names, address):
        if not is_address(name) and not _is_host_name(name):
            raise UsageError(
                f"{name!r} is not a host name or address", hint="such as pi.local or 10.0.0.7"
            )
        if len(name) > _LONGEST_NAME:
            hint = "give a shorter name, or an address"
            raise UsageError(f"{name!r} has more than {_LONGEST_NAME} characters", hint)
    for name in names:
        if name in LOOPBACK:
            hint = "give the name or address at which clients reach it, such as pi.local"
            raise UsageError(f"{name} stands for every address of a machine, and is none", hint)
    if not 1 <= port <= 65535:
        raise UsageError(f"a port is 1 to 65535, not {port}")


def _is_host_name(text: str) -> bool:
    """Return whether a host can have this name.

    Programs take a name whose last part is a number for an address, such as 999.1.1.1, 10.0.0 or
    0x7f.1: no host has it, and as an address it is wrong, or another one than it seems.
    """
    labels = text.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return False
    return all(_LABEL.fullmatch(label) for label in labels)


def listening_address(names: Sequence[str]) -> str:
    """Return the address at which a server listens whose clients reach it by these names.

    It is the loopback interface if all of them mean this machine, and otherwise every interface.
    """
    if all(name in HERE or name.startswith("127.") for name in names):
        return "::1" if set(names) == {"::1"} else "127.0.0.1"
    return "::" if any(":" in name for name in names) else "0.0.0.0"


def reason_of(error: OSError) -> str:
    """Return for people why a connection has failed, without the number of the error.

    asyncio puts the address into the text of an error, and joins those of several addresses.
    """
    if isinstance(error, socket.gaierror):
        return "nobody knows a machine of this name"
    if isinstance(error, TimeoutError):
        return "it does not answer in time"
    if error.errno == errno.ECONNREFUSED or f"Errno {errno.ECONNREFUSED}]" in str(error):
        return "nothing listens there"
    if error.errno:
        return os.strerror(error.errno)
    return str(error)


def is_address(text: str) -> bool:
    """Return whether the text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def bracketed(host: str) -> str:
    """Return a host as it is written in a URL, with brackets around an IPv6 address."""
    is_ipv6_address = ":" in host
    if is_ipv6_address:
        return f"[{host}]"
    return host
