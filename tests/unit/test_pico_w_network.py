"""The network of an emulated Pico W ends at this computer. These tests send the board's frames."""

import asyncio
import subprocess
import sys

import pytest
from rp2040py.external.cyw43 import net

from terntools.emulators.pico_w import network

BOARD_MAC = bytes([2, 0, 0, 0, 0, 9])
BOARD_PORT = 50_000
BROADCAST_MAC = b"\xff" * 6
# A second address of this computer: a server there could be reached, if the bridge let the board.
OTHER_LOOPBACK = "127.0.0.2"


class Mcu:
    """What the bridge needs of the emulated RP2040: it starts coroutines."""

    def __init__(self):
        self.tasks = []

    def schedule_threadsafe(self, coroutine):
        self.tasks.append(asyncio.ensure_future(coroutine))


def packed(address):
    """The four bytes of an IPv4 address."""
    return bytes(map(int, address.split(".")))


def ip_frame(address, protocol, payload):
    """A frame of the board with an IPv4 packet for an address."""
    packet = net.pack_ipv4(network.BOARD_ADDRESS, packed(address), protocol, payload)
    return net.pack_ethernet(BROADCAST_MAC, BOARD_MAC, net.ETHERTYPE_IPV4, packet)


def syn_frame(address, port):
    """A frame by which the board begins a TCP connection."""
    segment = net.pack_tcp(
        network.BOARD_ADDRESS,
        packed(address),
        BOARD_PORT,
        port,
        seq=1,
        ack=0,
        flags=net.TCP_SYN,
        window=8192,
    )
    return ip_frame(address, net.IP_PROTO_TCP, segment)


def udp_frame(address, port):
    """A frame with a UDP packet of the board."""
    datagram = net.pack_udp(network.BOARD_ADDRESS, packed(address), BOARD_PORT, port, b"?")
    return ip_frame(address, net.IP_PROTO_UDP, datagram)


async def tcp_flags_of_answer(frame):
    """The flags of the TCP segment with which the bridge answers a frame."""
    answers = asyncio.Queue()
    mcu = Mcu()
    network.Bridge(mcu, answers.put_nowait).handle_outbound_ethernet_frame(frame)
    try:
        answer = await asyncio.wait_for(answers.get(), 10)
    finally:
        for task in mcu.tasks:
            task.cancel()
    packet = net.parse_ipv4(net.parse_ethernet(answer).payload)
    return net.parse_tcp(packet.payload).flags


async def answer_to_connecting(server_address, dialled_address):
    """How the bridge answers if the board dials an address, while a server listens at another one.

    Returns the flags of the answer, and how many clients the server had.
    """
    clients = []

    async def meet(reader, writer):
        clients.append(writer)
        writer.close()

    async with await asyncio.start_server(meet, server_address, 0) as server:
        port = server.sockets[0].getsockname()[1]
        flags = await tcp_flags_of_answer(syn_frame(dialled_address, port))
        await asyncio.sleep(0.05)  # for a client that should not be there
    return flags, len(clients)


def test_a_connection_to_the_address_of_the_host_reaches_a_server_of_this_computer():
    flags, clients = asyncio.run(answer_to_connecting("127.0.0.1", "10.0.2.2"))
    assert flags == net.TCP_SYN | net.TCP_ACK
    assert clients == 1


@pytest.mark.parametrize("address", [OTHER_LOOPBACK, "127.0.0.1"])
def test_a_connection_to_any_other_address_is_reset(address):
    flags, clients = asyncio.run(answer_to_connecting(address, address))
    assert flags == net.TCP_RST | net.TCP_ACK
    assert clients == 0


def test_a_connection_to_a_port_without_a_server_is_reset():
    assert asyncio.run(tcp_flags_of_answer(syn_frame("10.0.2.2", 1))) & net.TCP_RST


@pytest.mark.parametrize("address", ["10.0.2.2", OTHER_LOOPBACK])
@pytest.mark.parametrize("port", [53, 123])
def test_udp_packets_are_dropped(address, port):
    mcu = Mcu()
    answers = []
    bridge = network.Bridge(mcu, answers.append)
    bridge.handle_outbound_ethernet_frame(udp_frame(address, port))
    assert not mcu.tasks
    assert not answers


def test_dhcp_gives_the_board_its_address():
    answers = []
    options = {53: bytes([net.DHCP_MSG_DISCOVER])}
    request = net.pack_dhcp(net.DHCP_OP_REQUEST, 1, BOARD_MAC, bytes(4), options)
    datagram = net.pack_udp(bytes(4), b"\xff" * 4, 68, 67, request)
    frame = ip_frame("255.255.255.255", net.IP_PROTO_UDP, datagram)
    network.Bridge(Mcu(), answers.append).handle_outbound_ethernet_frame(frame)
    packet = net.parse_ipv4(net.parse_ethernet(answers[0]).payload)
    offered = net.parse_udp(packet.payload).payload[16:20]  # "yiaddr", RFC 2131
    assert offered == network.BOARD_ADDRESS


# The process of the emulator, whatever rp2040py does

ATTEMPTS = {
    "a TCP connection": "socket.create_connection(('192.0.2.1', 9), 1)",
    "a TCP connection by IPv6": "socket.socket(socket.AF_INET6).connect(('2001:db8::1', 9))",
    "a UDP packet": "socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
    "a name": "socket.getaddrinfo('example.org', 9)",
    "a server for others": "socket.socket().bind(('0.0.0.0', 0))",
}


def run_after_forbidding(statement):
    """Run a statement in a process that may reach no other computer; return its errors."""
    program = f"""
import socket
from terntools.emulators.pico_w import network
network.forbid_other_computers()
{statement}
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    return ended.stderr


@pytest.mark.parametrize("statement", ATTEMPTS.values(), ids=ATTEMPTS)
def test_the_process_reaches_no_other_computer(statement):
    assert "an emulated Pico W reaches only this computer" in run_after_forbidding(statement)


def test_the_process_reaches_this_computer():
    statement = "server = socket.create_server(('127.0.0.1', 0))\n"
    statement += "socket.create_connection(server.getsockname())"
    assert run_after_forbidding(statement) == ""
