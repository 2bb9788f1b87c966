"""Host names and addresses of servers, and the names of the files of their authority.

The authority is the certificate authority of a fleet, which signs its servers' certificates.
"""

import ipaddress
import re
from collections.abc import Sequence

from ternhost.errors import UsageError

AUTHORITY = "authority.pem"
DEVICE_AUTHORITY = "authority.der"  # the same certificate for boards, which read no PEM
HERE = {"localhost", "127.0.0.1", "::1"}  # names that mean another machine on each machine
# For an address that stands for all interfaces, the address at which this machine is reached.
LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}

_NAME = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9.:-]*[A-Za-z0-9:])?")
_LONGEST_NAME = 63  # characters; a certificate's common name takes one more


def check_reached(names: Sequence[str], address: str, port: int) -> None:
    """Raise UsageError unless a server can have these names and listen there.

    names: the host names or addresses at which clients reach the server. address, port: where it
    listens.
    """
    for name in (*names, address):
        has_bad_colon = ":" in name and not is_address(name)  # only an IPv6 address has colons
        if not _NAME.fullmatch(name) or has_bad_colon:
            raise UsageError(
                f"{name!r} is not a host name or address", hint="such as pi.local or 10.0.0.7"
            )
        if len(name) > _LONGEST_NAME:
            hint = "give a shorter name, or an address"
            raise UsageError(f"{name!r} has more than {_LONGEST_NAME} characters", hint)
    if not 1 <= port <= 65535:
        raise UsageError(f"a port is 1 to 65535, not {port}")


def listening_address(names: Sequence[str]) -> str:
    """Return the address at which a server listens whose clients reach it by these names.

    It is the loopback interface if all of them mean this machine, and otherwise every interface.
    """
    if all(name in HERE or name.startswith("127.") for name in names):
        return "::1" if set(names) == {"::1"} else "127.0.0.1"
    return "::" if any(":" in name for name in names) else "0.0.0.0"


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
