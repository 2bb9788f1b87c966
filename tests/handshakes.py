"""Prints what a TLS handshake between a board and its broker costs: bytes, and instructions.

python tests/handshakes.py              the bytes that OpenSSL sends and receives as a client
python tests/handshakes.py rv32 xtensa  and how many instructions emulated boards execute for it

The certificates are those that tern makes for a broker; the version is TLS 1.2, as in its mosquitto.conf.
The figures of shared_specs/currents.json for a shared key and a resumed session rest on this.
"""

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ternhost.reach.broker.mosquitto import free_port, listens
from ternhost.reach.certificates import write_certificates
from terntools.boards.repl import Repl
from terntools.emulators import qemu

BOARDS = ("rv32", "xtensa")  # emulators that count instructions
PORT = free_port()
KEY = "00112233445566778899aabbccddeeff"
CERTIFICATE = ("-cert", "broker.pem", "-key", "broker.key")
SHARED_KEY = ("-nocert", "-psk", KEY, "-psk_identity", "00000007", "-cipher", "ALL:PSK")
VERIFYING = ("-CAfile", "authority.pem", "-servername", "localhost")
WITH_KEY = ("-psk", KEY, "-psk_identity", "00000007", "-cipher")
# The options of a server, and for each kind of handshake with it those of the client.
KINDS = (
    (
        CERTIFICATE,
        {
            "certificates": (*VERIFYING, "-sess_out", "session.pem"),
            "resumed session": (*VERIFYING, "-sess_in", "session.pem"),
        },
    ),
    (
        SHARED_KEY,
        {
            "shared key": (*WITH_KEY, "PSK-AES128-GCM-SHA256"),
            "shared key with ECDHE": (*WITH_KEY, "ECDHE-PSK-AES128-CBC-SHA256"),
        },
    ),
)

# A board adds up what its calls take in which it computes. It waits between them. Like a board of
# tern, it has other objects in its heap, and then one context for all its connections.
PROGRAM = f"""
import network, socket, time, tls
objects = [bytearray(40) for _ in range(OBJECTS)]
context = tls.SSLContext(tls.PROTOCOL_TLS_CLIENT)
context.verify_mode = tls.CERT_REQUIRED
with open("/authority.der", "rb") as file:
    context.load_verify_locations(file.read())
station = network.WLAN(network.STA_IF)
station.active(True)
station.connect("air", "any password")
while not station.isconnected():
    time.sleep_ms(50)

def handshake():
    line = socket.socket()
    line.connect(("10.0.2.2", {PORT}))
    line.setblocking(False)
    line = context.wrap_socket(line, server_hostname="localhost", do_handshake_on_connect=False)
    times = []
    done = None
    while not done:
        start = time.ticks_us()
        done = line.write(b"x")
        times.append(time.ticks_diff(time.ticks_us(), start))
        time.sleep_ms(5)
    line.close()
    return sum(times), max(times)
"""


@contextmanager
def server(directory: Path, options: tuple[str, ...]) -> Iterator[None]:
    """Run OpenSSL's server in the folder with the certificates."""
    command = ["openssl", "s_server", "-accept", f"127.0.0.1:{PORT}", "-tls1_2", "-quiet", *options]
    process = subprocess.Popen(
        command,
        cwd=directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not listens("127.0.0.1", PORT):
            if process.poll() is not None:
                raise SystemExit("openssl s_server does not start")
            time.sleep(0.05)
        yield
    finally:
        process.kill()
        process.wait()


def print_bytes(directory: Path) -> None:
    """Print how many bytes a client sends and receives in each kind of handshake."""
    for of_server, clients in KINDS:
        with server(directory, of_server):
            for kind, of_client in clients.items():
                print_bytes_of(directory, kind, of_client)


def print_bytes_of(directory: Path, kind: str, options: tuple[str, ...]) -> None:
    """Connect to the server that runs, and print how many bytes the handshake takes."""
    command = ["openssl", "s_client", "-connect", f"localhost:{PORT}", "-tls1_2", *options]
    result = subprocess.run(
        command, cwd=directory, input="Q\n", capture_output=True, text=True, timeout=20
    )
    received, sent = re.findall(r"has read (\d+) bytes and written (\d+)", result.stdout)[0]
    print(f"{kind:24} sent {sent:>4} bytes, received {received:>4} bytes")


def print_instructions(directory: Path, board: str, objects: int) -> None:
    """Print how many instructions an emulated board executes for a handshake with certificates.

    objects: how many others are in its heap.
    """
    authority = (directory / "authority.der").read_bytes()
    with (
        server(directory, CERTIFICATE),
        qemu.boot(board, seed=1, count_instructions=True) as machine,
        Repl(machine.url) as repl,
    ):
        repl.files.write("/authority.der", authority)
        repl.run(PROGRAM.replace("OBJECTS", str(objects)), 120)
        for which in ("first", "second"):
            total, longest = repl.evaluate("handshake()", 300)
            share = (total - longest) / total  # the other calls have no operation on P-256
            millions = f"{total / 1000:.0f} million instructions"
            print(
                f"{board}, {objects} objects: {which} handshake {millions}, {share:.2%} elsewhere"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    help_of_boards = f"count instructions on it, too: {' or '.join(BOARDS)}"
    parser.add_argument("boards", nargs="*", metavar="BOARD", help=help_of_boards)
    args = parser.parse_args()
    for board in args.boards:
        if board not in BOARDS:
            parser.error(f"a board is {' or '.join(BOARDS)}, not {board}")
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_certificates(directory, ["localhost"])
        print_bytes(directory)
        for board in args.boards:
            for objects in (0, 900):
                print_instructions(directory, board, objects)


if __name__ == "__main__":
    main()
