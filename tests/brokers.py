"""Brokers beside the installed Mosquitto, from Debian's packages in tern's cache.

`python brokers.py` fetches them.
"""

import subprocess
import sys

import pytest

from ternhost import cache
from ternhost.errors import TernError
from terntools.emulators.debian import Shell, download

# (program, release): packages of each release. Mosquitto of Debian 12's backports needs a library
# of its own.
PACKAGES = {
    ("mosquitto", "bookworm"): {
        "bookworm-backports": ["mosquitto"],
        "bookworm": ["libwebsockets17"],
    },
    ("nats-server", "bookworm"): {"bookworm": ["nats-server"]},  # 2.9.10
    ("nats-server", "trixie"): {"trixie": ["nats-server"]},  # 2.10.27
}
NEWER = "2.0.21"


def fetch(program, release="bookworm", progress=print):
    """The folder with `program`, unpacked into the cache. Raises TernError."""
    packages = PACKAGES[program, release]

    def make(work, out):
        shell = Shell(work / "log", progress)
        for release, names in packages.items():
            download([], names, work, shell, release)
        debs = sorted(work.glob("*.deb"))
        for deb in debs:
            shell.run("dpkg-deb", "--extract", deb, out / "root")
        (out / program).write_text(
            '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")\n'
            'export LD_LIBRARY_PATH="$(echo "$here"/root/usr/lib/*-linux-gnu)"\n'
            f'exec "$here/root/usr/sbin/{program}" "$@"\n'
        )
        (out / program).chmod(0o755)
        return {deb.name: cache.sha256_of(deb) for deb in debs}

    products = (program, f"root/usr/sbin/{program}")
    return cache.build_entry(cache.Recipe(program, "debian", packages, products), make, progress)


def fetched(program, release="bookworm"):
    """As `fetch`; skip the test where the program cannot be had or does not run here."""
    try:
        folder = fetch(program, release)
    except TernError as error:
        pytest.skip(f"{program} cannot be had: {error.message}")
    ended = subprocess.run([folder / program, "-h"], capture_output=True, text=True)
    if "sage" not in ended.stdout:
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
