"""A Mosquitto broker for a fleet: its configuration with certificates, passwords and an access list, and its process.

A board may write only its own topics and read only its own and the fleet's; the host may write what boards read. Its
client id is its user name, so that no board can take another's session.
"""

from __future__ import annotations

import base64
import getpass
import hashlib
import ipaddress
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tern import wire
from tern.links import mqtt
from ternhost.errors import DeviceError, StorageError, UsageError

HOST_USER = "tern-host"

CONFIG = "mosquitto.conf"
PASSWORDS = "passwords"
ACCESS = "access"
AUTHORITY = "authority.pem"
DEVICE_AUTHORITY = "authority.der"  # for boards
_AUTHORITY_KEY = "authority.key"
CERTIFICATE = "broker.pem"
KEY = "broker.key"
HOST = "host.json"

# A board without a clock begins in 2000 (ESP32) or in the year of its firmware, and checks these dates all the same.
_NOT_BEFORE = datetime(1970, 1, 1)
_NOT_AFTER = datetime(2049, 12, 31)
_NAME = re.compile(r"[A-Za-z0-9:]([A-Za-z0-9.:-]{0,61}[A-Za-z0-9:])?")
_PREFIX = re.compile(r"[\w.-]+(/[\w.-]+)*", re.ASCII)
_LONGEST_PREFIX = 64
_MOST_HOSTS = 1000
_ITERATIONS = 101  # Mosquitto's default; the passwords are random and have 128 bits
_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 5.0
_PORTS = range(10_000, 30_000)
_given: set[int] = set()  # by free_port

# tern/hello/<board> is removed by an empty message, the board's will. %u is the user name.
_HOST_ACCESS = """\
user {host}
topic write {prefix}/round
topic write {prefix}/down/+
topic read {prefix}/up/+
topic read {prefix}/hello/+

"""
_BOARD_ACCESS = """\
pattern write {prefix}/up/%u
pattern write {prefix}/hello/%u
pattern read {prefix}/down/%u
pattern read {prefix}/round
"""

_MOSQUITTO_CONF = """\
# Written by tern. Start with: mosquitto -c {config}
per_listener_settings false
user {user}
listener {port} {address}
{tls}
allow_anonymous false
password_file {passwords}
acl_file {access}
use_username_as_clientid true

# No packet of tern is longer. A client that floods can hold back so much and no more.
max_packet_size {largest_packet}
max_inflight_messages 1000
max_queued_messages {queued}
max_keepalive 3600

# Keeps what the whole fleet is asked, and reports that the host has not taken yet, over a restart.
persistence {persistence}
persistence_location {directory}/
autosave_interval 60
log_dest stderr
log_type error
log_type warning
"""


@dataclass(frozen=True)
class Access:
    """How to reach a broker: `authority` is a PEM file, None for a broker without TLS."""

    host: str
    port: int
    user: str
    password: str
    authority: str | None
    prefix: str = "tern"

    @classmethod
    def load(cls, path: str | Path) -> Access:
        """Read host.json, as `write_configuration` made it. Raises UsageError and StorageError."""
        path = Path(path)
        try:
            access = cls(**json.loads(path.read_text()))
        except OSError as error:
            raise StorageError(f"{path}: {error.strerror}", hint="make it: tern broker config") from error
        except (ValueError, TypeError) as error:
            raise UsageError(f"{path} does not say how to reach a broker: {error}") from error
        if access.authority is None:
            return access
        return cls(**{**asdict(access), "authority": str(path.parent / access.authority)})


def check_prefix(prefix: str) -> None:
    """Raise UsageError where no fleet's topics can begin so."""
    if len(prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(prefix):
        raise UsageError(
            f"topics cannot begin with {prefix!r}",
            hint=f"give at most {_LONGEST_PREFIX} letters, digits, '_', '-' and '.', in parts divided by '/'",
        )


def password_line(user: str, password: str) -> str:
    """A line of Mosquitto's password file: PBKDF2 with SHA-512."""
    salt = secrets.token_bytes(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    encoded = (base64.b64encode(part).decode() for part in (salt, digest))
    return f"{user}:$7${_ITERATIONS}${'$'.join(encoded)}"


def write_configuration(
    directory: str | Path,
    keys: Mapping[int, bytes],
    *,
    names: Sequence[str] = ("localhost", "127.0.0.1"),
    address: str = "127.0.0.1",
    port: int = 8883,
    prefix: str = "tern",
    tls: bool = True,
    persistence: bool = True,
    queued: int = 100_000,
    hosts: int = 1,
) -> Access:
    """Write all that Mosquitto needs into `directory`, and host.json, with which the host reaches it.

    hosts: how many processes may be connected as hosts at once, with names of their own: host.json, host-2.json, ...

    keys: of the first client of each board. names: host names and addresses under which boards reach the broker, which
    its certificate carries. What is there already stays: certificates and the host's password; so that only the
    passwords of boards change. Raises StorageError and UsageError.
    """
    if bad := [name for name in (*names, address) if not _NAME.fullmatch(name)]:
        raise UsageError(f"{bad[0]!r} is no host name or address", hint="such as broker.local or 10.0.0.7")
    if not 1 <= port <= 65535 or not 1 <= hosts <= _MOST_HOSTS:
        raise UsageError(f"a port is 1 to 65535, and hosts at once are 1 to {_MOST_HOSTS}")
    check_prefix(prefix)
    directory = Path(directory).absolute()
    if any(character.isspace() for character in str(directory)):
        raise UsageError(f"{directory}: Mosquitto takes no path with a space", hint="name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if tls:
            _write_certificates(directory, names)
        access_list = ""
        for host in range(1, hosts + 1):
            suffix = "" if host == 1 else f"-{host}"
            _write_host(
                directory / HOST.replace(".", suffix + "."),
                Access(names[0], port, HOST_USER + suffix, "", AUTHORITY if tls else None, prefix),
            )
            access_list += _HOST_ACCESS.format(host=HOST_USER + suffix, prefix=prefix)
        _write(directory / ACCESS, (access_list + _BOARD_ACCESS.format(prefix=prefix)).encode())
        write_passwords(directory, keys)
        files = f"certfile {directory / CERTIFICATE}\nkeyfile {directory / KEY}\ntls_version tlsv1.2"
        text = _MOSQUITTO_CONF.format(
            config=directory / CONFIG,
            user=getpass.getuser(),
            port=port,
            address=address,
            tls=files if tls else "# without TLS",
            passwords=directory / PASSWORDS,
            access=directory / ACCESS,
            largest_packet=wire.MAX_FRAME + 128,
            queued=queued,
            persistence="true" if persistence else "false",
            directory=directory,
        )
        _write(directory / CONFIG, text.encode())
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error
    return Access.load(directory / HOST)


def _write_host(path: Path, access: Access) -> None:
    password = Access.load(path).password if path.exists() else secrets.token_urlsafe(16)
    whole = {**asdict(access), "password": password}
    _write(path, json.dumps(whole, indent=1).encode() + b"\n", secret=True)


def write_passwords(directory: str | Path, keys: Mapping[int, bytes]) -> None:
    """Write the password file anew, for the hosts and for the boards whose first clients have `keys`.

    A broker that runs takes it on SIGHUP. Raises StorageError.
    """
    directory = Path(directory)
    hosts = [Access.load(path) for path in sorted(directory.glob(HOST.replace(".", "*.")))]
    lines = [password_line(host.user, host.password) for host in hosts]
    lines += [password_line(mqtt.name(device), mqtt.password(key)) for device, key in keys.items()]
    try:
        _write(directory / PASSWORDS, "\n".join(lines).encode() + b"\n", secret=True)
    except OSError as error:
        raise StorageError(f"cannot write {error.filename}: {error.strerror}") from error


def _write(path: Path, data: bytes, secret: bool = False) -> None:
    new = path.with_name(path.name + ".new")
    with open(os.open(new, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600 if secret else 0o644), "wb") as file:
        file.write(data)
    os.replace(new, path)


# Certificates


def _write_certificates(directory: Path, names: Sequence[str]) -> None:
    """An authority of this broker alone, and the broker's certificate: both on P-256, which boards can check."""
    if (directory / _AUTHORITY_KEY).exists():
        authority_key = serialization.load_pem_private_key((directory / _AUTHORITY_KEY).read_bytes(), None)
        authority = x509.load_pem_x509_certificate((directory / AUTHORITY).read_bytes())
        assert isinstance(authority_key, ec.EllipticCurvePrivateKey)
    else:
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _certificate("tern broker authority", authority_key, authority_key, None, ())
        _write(directory / _AUTHORITY_KEY, _private(authority_key), secret=True)
        _write(directory / AUTHORITY, authority.public_bytes(serialization.Encoding.PEM))
        _write(directory / DEVICE_AUTHORITY, authority.public_bytes(serialization.Encoding.DER))
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _certificate(names[0], key, authority_key, authority.subject, names)
    _write(directory / KEY, _private(key), secret=True)
    _write(directory / CERTIFICATE, certificate.public_bytes(serialization.Encoding.PEM))


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    issuer: x509.Name | None,
    names: Sequence[str],
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing = issuer is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_NOT_BEFORE)
        .not_valid_after(_NOT_AFTER)
        .add_extension(x509.BasicConstraints(signing, 0 if signing else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(
            x509.KeyUsage(not signing, False, False, False, False, signing, signing, False, False),
            critical=True,
        )
    )
    if names:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_alternative(name) for name in names]), critical=False
        )
    return builder.sign(signer, hashes.SHA256())


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


# The process


def free_port() -> int:
    """A port of the loopback interface on which nobody listens now; none that systems give to whoever asks for any."""
    while True:
        port = secrets.choice(_PORTS)
        if port in _given:
            continue
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            _given.add(port)
            return port


class Mosquitto:
    """A Mosquitto process on a configuration of `write_configuration`. A context manager that ends it."""

    def __init__(self, directory: str | Path) -> None:
        """Start it, and wait until it listens. Raises DeviceError."""
        self.directory = Path(directory)
        self.access = Access.load(self.directory / HOST)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process again after `stop` or `kill`."""
        binary = shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
        if binary is None:
            raise DeviceError(
                "there is no mosquitto on this machine",
                hint="apt-get install --no-install-recommends mosquitto",
            )
        log = self.directory / "mosquitto.log"
        with open(log, "ab") as out:
            self._process = subprocess.Popen(
                [binary, "-c", str(self.directory / CONFIG)], stdin=subprocess.DEVNULL, stdout=out, stderr=out
            )
        end = time.monotonic() + _START_TIMEOUT
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill()
                lines = log.read_text(errors="replace").splitlines()
                raise DeviceError(
                    "mosquitto does not start" + (f": {lines[-1]}" if lines else ""), hint=f"see {log}"
                )
            time.sleep(0.01)

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.access.port), timeout=1).close()
        except OSError:
            return False
        return True

    def reload(self) -> None:
        """Have it read its passwords and its access list again."""
        if self._process:
            self._process.send_signal(1)

    def stop(self) -> None:
        """End it in order: it saves what it is to keep."""
        if self._process:
            self._process.terminate()
            try:
                self._process.wait(_STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process = None

    def kill(self) -> None:
        """End it at once."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
