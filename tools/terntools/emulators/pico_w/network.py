"""The network of an emulated Pico W: one address, at which the host answers, and nothing beyond it.

rp2040py emulates the Wi-Fi chip of a Pico W, and hands over each Ethernet frame that the board
sends. Its own bridge lets the board reach every address that this computer can reach. `Bridge` takes
its place: it knows no other computer than this one. `forbid_other_computers` makes sure of this for
the whole process, whatever rp2040py does.
"""

import asyncio
import errno
import ipaddress
import sys
from collections.abc import Callable
from typing import Any

from rp2040py.external.cyw43 import Cyw43439, net
from rp2040py.external.cyw43.nat import ArpResponder, DhcpServer, TcpReflector

# The addresses of the board and of this computer, as on the emulated boards of QEMU.
BOARD_ADDRESS = bytes([10, 0, 2, 15])
HOST_ADDRESS = bytes([10, 0, 2, 2])
_LOOPBACK = "127.0.0.1"

_Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Bridge:
    """Answers the Ethernet frames of the board.

    It gives the board its address, and connects its TCP connections to HOST_ADDRESS with the same
    port of this computer's loopback interface. Connections to all other addresses are reset, and
    all UDP packets but those of DHCP are dropped, also those that ask for names.
    """

    def __init__(self, mcu: Any, send: Callable[[bytes], None]) -> None:
        """mcu: the emulated RP2040. send: hands a frame to the board."""
        self._send = send
        self._arp = ArpResponder(gateway_ip=HOST_ADDRESS)
        self._dhcp = DhcpServer(guest_ip=BOARD_ADDRESS, gateway_ip=HOST_ADDRESS)
        self._tcp = TcpReflector(mcu, send, connect_fn=_connect)

    def handle_outbound_ethernet_frame(self, frame: bytes) -> None:
        """Answer a frame that the board has sent."""
        ethernet = net.parse_ethernet(frame)
        if ethernet is None:
            return
        reply = self._arp.maybe_handle(ethernet) or self._dhcp.maybe_handle(ethernet)
        if reply is not None:
            self._send(reply)
            return
        if ethernet.ethertype != net.ETHERTYPE_IPV4:
            return
        packet = net.parse_ipv4(ethernet.payload)
        if packet is not None:
            self._tcp.maybe_handle(ethernet, packet)  # leaves packets that are not TCP alone

    def reset(self) -> None:
        """End all connections: the board has left the network."""
        self._tcp.reset()


async def _connect(address: str, port: int) -> _Streams:
    """Connect to a port of this computer.

    address: to which the board connects. Raises ConnectionRefusedError unless it is HOST_ADDRESS.
    """
    if ipaddress.IPv4Address(address).packed != HOST_ADDRESS:
        raise ConnectionRefusedError(f"{address} is not this computer")
    return await asyncio.open_connection(_LOOPBACK, port)


class WirelessChip:
    """The Wi-Fi chip of a Pico W, with a network that ends at this computer."""

    def attach(self, mcu: Any) -> None:
        """Connect the chip to the pins of an emulated RP2040."""
        chip = Cyw43439()
        chip.attach(mcu)
        chip.bus.nat_bridge = Bridge(mcu, chip.bus.queue_rx_ethernet_frame)


def forbid_other_computers() -> None:
    """Let this process reach no other computer from now on; it cannot be undone.

    A later attempt to do so raises PermissionError, as does one to look up the name of a computer.
    """
    sys.addaudithook(_require_loopback)


def _require_loopback(event: str, arguments: tuple[Any, ...]) -> None:
    """Raise PermissionError if an audit event would reach beyond this computer.

    Python raises these events before it acts ("Audit events table" of its documentation). An
    address is a pair, or longer, for a network, and a path for a Unix socket.
    """
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg", "socket.bind"):
        address = arguments[1]
        if isinstance(address, tuple):
            _require_loopback_address(str(address[0]))
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        _require_loopback_address(str(arguments[0]))


def _require_loopback_address(host: str) -> None:
    """Raise PermissionError unless `host` is an address of the loopback interface."""
    try:
        is_loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        is_loopback = False
    if not is_loopback:
        text = f"an emulated Pico W reaches only this computer, not {host}"
        raise PermissionError(errno.EACCES, text)
