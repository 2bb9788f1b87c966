"""A Debian with systemd in a container of systemd-nspawn, on which tests install tern as users do.

Its files are in the cache, with the packages that tern needs; a test changes a copy of them in memory.
"""

import ast
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import release
from harness.installed import PROJECT
from packaging.requirements import Requirement as PythonRequirement

from ternhost import cache
from ternhost.errors import TernError
from ternhost.files import Closing
from terntools.emulators import debian
from terntools.emulators.debian import Requirement, Shell

RELEASE = "bookworm"  # newer ones need cgroup v2, which not every machine that runs tests has
PACKAGES = ["systemd", "systemd-sysv", "dbus", "python3-venv", "mosquitto", "ca-certificates"]
if os.uname().machine == "x86_64":
    PACKAGES.append("libc6-i386")  # for emulated boards, which are 32-bit programs
TOOLS = [Requirement("mmdebstrap"), Requirement("systemd-container", "systemd-nspawn")]
EXTRAS = ("mqtt", "dashboard")
METADATA = PROJECT["project"]
ROWS = [
    f"{number % 20 / 10 - 1:.1f},{number % 7 / 3 - 1:.2f},{1 if number % 20 > 9 else -1}"
    for number in range(400)
]
TABLE = "\n".join(["a,b,label", *ROWS]) + "\n"  # records that a model can learn from
HOSTS = "127.0.0.1 localhost\n127.0.0.1 broker.local\n"
_BOOT = 60.0  # seconds


def locked_requirements():
    """The requirements of tern and of EXTRAS, with all that these need, as tools/locks pins them."""
    lines = [*METADATA["dependencies"]]
    for extra in EXTRAS:
        lines += METADATA["optional-dependencies"][extra]
    wanted = release.needs_of("", lines).keys() - {""}
    pinned = re.findall(r"^([\w.-]+)(?:\[[\w, -]+\])?==([\w.]+)", release.LOCK.read_text(), re.M)
    names = {PythonRequirement(line).name for line in lines} | wanted
    return sorted(f"{name}=={version}" for name, version in pinned if name in names)


def pip_settings():
    """pip's settings on this machine as environment variables, and the paths that they name."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    )
    environment, places = {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}, set()
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        name = key.rpartition(".")[2]
        if name not in ("index-url", "extra-index-url", "find-links", "cert", "trusted-host"):
            continue
        text = ast.literal_eval(value)
        environment[f"PIP_{name.upper().replace('-', '_')}"] = text
        for word in text.split():
            path = Path(word.removeprefix("file://"))
            if path.is_absolute() and path.exists():
                places.add(path.parent if name.endswith("index-url") else path)
    return environment, sorted(places)


def run_in(root, *command, environment=None, places=()):
    """Run a command in a root without systemd, with the network of this machine."""
    words = ["systemd-nspawn", "--quiet", f"--directory={root}", "--register=no", "--keep-unit"]
    words += ["--as-pid2", "--pipe", *(f"--bind-ro={place}" for place in places)]
    words += [f"--setenv={name}={value}" for name, value in (environment or {}).items()]
    return subprocess.run([*words, *command], capture_output=True, text=True, check=True)


def make_root(progress=print):
    """The folder of the Debian in the cache, made if it is missing. Raises TernError."""
    requirements = locked_requirements()

    def make(work, out):
        shell = Shell(work / "log", progress)
        mirror = [address] if (address := os.environ.get("TERN_DEBIAN_MIRROR")) else []
        include = f"--include={','.join(PACKAGES)}"
        shell.run("mmdebstrap", "--variant=minbase", include, RELEASE, out / "root", *mirror)
        (out / "root/etc/hosts").write_text(HOSTS)
        environment, places = pip_settings()
        run_in(out / "root", "python3", "-m", "venv", "/opt/tern")
        pip = ("/opt/tern/bin/pip", "install", "--quiet", "--no-cache-dir")
        run_in(out / "root", *pip, *requirements, environment=environment, places=places)
        return {"requirements": " ".join(requirements)}

    products = ("root/usr/bin/mosquitto_passwd", "root/opt/tern/bin/pip")
    options = {"packages": PACKAGES, "requirements": requirements}
    recipe = cache.Recipe("debian", RELEASE, options, products)
    return cache.build_entry(recipe, make, progress) / "root"


def root_or_skip():
    """As `make_root`; skip the test where it cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("only root can run a machine in a container")
    try:
        debian.install(TOOLS, print)
        return make_root()
    except (TernError, OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", "") or error
        pytest.skip(f"a Debian cannot be had: {reason}")


def next_release(wheel, version, folder):
    """Write the same wheel as another version into a folder, and return its path."""
    old = METADATA["version"]
    path = folder / wheel.name.replace(old, version)
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(path, "w") as target:
        for entry in source.infolist():
            data = source.read(entry)
            name = entry.filename.replace(f"-{old}.dist-info", f"-{version}.dist-info")
            if ".dist-info/" in name:
                data = data.replace(f"-{old}.dist-info".encode(), f"-{version}.dist-info".encode())
                data = data.replace(f"\nVersion: {old}".encode(), f"\nVersion: {version}".encode())
            target.writestr(name, data)
    return path


class Machine(Closing):
    """A Debian that runs, with systemd as its first process and a network of its own.

    A context manager that ends it. `files` is its root directory. All that it writes is gone with it.
    """

    def __init__(self, root, folder, places=()):
        """Start it. folder: an empty one. places: what it may read of this machine.

        A place is a folder, or "FOLDER:WHERE" if it is to be elsewhere there.
        """
        self._folder = folder
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
        try:
            self.files = folder / "root"
            layers = [folder / name for name in ("upper", "work", "root")]
            for layer in layers:
                layer.mkdir()
            options = f"lowerdir={root},upperdir={layers[0]},workdir={layers[1]}"
            mount = ["mount", "-t", "overlay", "overlay", "-o", options, self.files]
            subprocess.run(mount, check=True)
            self._start(places)
        except BaseException:
            self.close()
            raise

    def _start(self, places):
        words = ["systemd-nspawn", "--quiet", f"--directory={self.files}", "--boot"]
        words += ["--register=no", "--keep-unit", "--private-network"]
        words += [f"--machine=tern-{os.getpid()}", *(f"--bind-ro={place}" for place in places)]
        self._console = open(self._folder / "console", "wb")  # noqa: SIM115
        self._process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=self._console, stderr=self._console
        )
        end = time.monotonic() + _BOOT
        while True:
            state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
            if state in ("running", "degraded"):
                return
            if self._process.poll() is not None or time.monotonic() > end:
                said = (self._folder / "console").read_text(errors="replace")
                pytest.skip(f"systemd does not start in a container here: {state}: {said[-500:]}")
            time.sleep(0.2)

    def _into(self):
        """The beginning of a command line that runs a command in the machine."""
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        leader = children.read_text().split()[:1]
        return ["nsenter", "--all", f"--target={leader[0]}"] if leader else ["false"]

    def run(self, *command, check=True):
        """Run a command as root."""
        ended = subprocess.run(
            [*self._into(), *command], capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        assert not check or ended.returncode == 0, (command, ended.stdout, ended.stderr)
        return ended

    def shell(self, lines):
        """Run lines of a shell as root in its home directory, until one fails."""
        return self.run("sh", "-ec", f"cd /root\n{lines}")

    def begin(self, name, line):
        """Start a line of a shell that goes on. /run/NAME.pid has the number of its process there."""
        words = [*self._into(), "sh", "-c", f"echo $$ >/run/{name}.pid; exec {line}"]
        with self.log(name).open("wb") as file:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    def log(self, name):
        """The file with the output of what `begin` has started."""
        return self._folder / f"{name}.log"

    def value(self, unit, name):
        """A property of a unit."""
        return self.run("systemctl", "show", f"--property={name}", "--value", unit).stdout.strip()

    def journal(self, unit):
        """The log of a service: (priority, message) of each entry that tern has written."""
        words = ("journalctl", "--unit", unit, "--output", "json")
        entries = map(json.loads, self.run(*words).stdout.splitlines())
        return [
            (int(entry["PRIORITY"]), entry["MESSAGE"])
            for entry in entries
            if entry.get("SYSLOG_IDENTIFIER", "").startswith("tern-")
        ]

    def close(self):
        """End it, and remove what it has written."""
        process = getattr(self, "_process", None)
        if process is not None:
            self.run("systemctl", "poweroff", "--force", "--force", check=False)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            self._console.close()
        for place in (self._folder / "root", self._folder):
            subprocess.run(["umount", "--lazy", place], stderr=subprocess.DEVNULL)
