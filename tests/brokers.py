"""Brokers of other releases than the installed ones, from Debian's packages in tern's cache.

`python brokers.py` fetches them.
"""

import subprocess
import sys
from typing import NamedTuple

import pytest

from ternhost import cache
from ternhost.errors import TernError
from terntools.emulators.debian import NEXT, Shell, download


class Packages(NamedTuple):
    """The Debian packages that a program of a release is unpacked from."""

    names: dict[str, list[str]]  # by the release that has them
    # Whether they come with all that they depend on, and so with a C library of their own: that of
    # this machine may be too old.
    dependencies: bool = False


# By the program and the release of Debian that it is from.
PACKAGES = {
    # 2.0.21; it needs a library of its own
    ("mosquitto", "bookworm"): Packages(
        {"bookworm-backports": ["mosquitto"], "bookworm": ["libwebsockets17"]}
    ),
    ("mosquitto", NEXT): Packages({NEXT: ["mosquitto"]}, dependencies=True),  # 2.1.2 or later
    ("nats-server", "bookworm"): Packages({"bookworm": ["nats-server"]}),  # 2.9.10
    ("nats-server", "trixie"): Packages({"trixie": ["nats-server"]}),  # 2.10.27
    ("nats-server", NEXT): Packages({NEXT: ["nats-server"]}),  # 2.15.1 or later
    # No broker, but fetched in the same way: it checks rules for Prometheus.
    ("promtool", "bookworm"): Packages({"bookworm": ["prometheus"]}),  # 2.42
}

# Starts {program} with the libraries beside it. The loader is that of the C library beside it, if
# there is one. It is started by a link with the name of the program, since the system names a
# process after the file that it was started from, and tern looks for a process of that name.
START = """#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
libraries=$(echo "$here"/root/usr/lib/*-linux-gnu)
if [ -e "$here/loader/{program}" ]; then
    exec "$here/loader/{program}" --library-path "$libraries" --argv0 {program} \\
        "$here/root/usr/sbin/{program}" "$@"
fi
export LD_LIBRARY_PATH="$libraries"
exec "$here/root/usr/sbin/{program}" "$@"
"""


def fetch(program, release="bookworm", progress=print):
    """The folder with `program`, unpacked into the cache. Raises TernError."""
    packages = PACKAGES[program, release]

    def make(work, out):
        shell = Shell(work / "log", progress)
        for each_release, names in packages.names.items():
            download([], names, work, shell, each_release, dependencies=packages.dependencies)
        debs = sorted(work.glob("*.deb"))
        for deb in debs:
            shell.run("dpkg-deb", "--extract", deb, out / "root")
        of_all_users = out / "root" / "usr" / "bin" / program
        if of_all_users.exists():
            of_all_users.parent.with_name("sbin").mkdir(exist_ok=True)
            of_all_users.rename(out / "root" / "usr" / "sbin" / program)
        for libraries in (out / "root").glob("usr/lib/*-linux-gnu"):
            # Without root, it makes the links that some packages leave to it.
            shell.run("/sbin/ldconfig", "-n", libraries)
            for loader in libraries.glob("ld-linux-*.so.*"):
                (out / "loader").mkdir()
                (out / "loader" / program).symlink_to(f"../{loader.relative_to(out)}")
        (out / program).write_text(START.format(program=program))
        (out / program).chmod(0o755)
        return {deb.name: cache.sha256_of(deb) for deb in debs}

    recipe = cache.Recipe(
        name=program,
        version="debian",
        options={"packages": packages.names, "start": START},
        products=(program, f"root/usr/sbin/{program}"),
    )
    return cache.build_entry(recipe, make, progress)


def fetched(program, release="bookworm"):
    """As `fetch`; skip the test where the program cannot be had or does not run here."""
    try:
        folder = fetch(program, release)
    except TernError as error:
        pytest.skip(f"{program} cannot be had: {error.message}")
    ended = subprocess.run([folder / program, "-h"], capture_output=True, text=True)
    if "sage" not in ended.stdout + ended.stderr:
        pytest.skip(f"{program} of {release} does not run here: {ended.stderr.strip()}")
    return folder


if __name__ == "__main__":
    for each in PACKAGES:
        try:
            fetch(*each)
        except TernError as error:
            print(
                f"brokers: the tests go without {' of '.join(each)}: {error.message}",
                file=sys.stderr,
            )
