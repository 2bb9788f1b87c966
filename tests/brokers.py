"""Brokers beside the installed Mosquitto, from Debian's packages in tern's cache. `python brokers.py` fetches them."""

import subprocess
import sys

import pytest

from ternhost import cache
from ternhost.errors import TernError
from terntools.emulators.debian import Shell, download

# Program -> (release, packages): Mosquitto of Debian 12's backports, with the library that only this version needs.
PACKAGES = {
    "mosquitto": {"bookworm-backports": ["mosquitto"], "bookworm": ["libwebsockets17"]},
    "nats-server": {"bookworm": ["nats-server"]},
}
NEWER = "2.0.21"


def fetch(program, progress=print):
    """The folder with `program`, unpacked into the cache. Raises TernError."""
    packages = PACKAGES[program]

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


def fetched(program):
    """As `fetch`; skip the test where the program cannot be had or does not run here."""
    try:
        folder = fetch(program)
    except TernError as error:
        pytest.skip(f"{program} cannot be had: {error.message}")
    ended = subprocess.run([folder / program, "-h"], capture_output=True, text=True)
    if "sage" not in ended.stdout:
        pytest.skip(f"{program} of Debian 12 does not run here: {ended.stderr.strip()}")
    return folder


if __name__ == "__main__":
    for each in PACKAGES:
        try:
            fetch(each)
        except TernError as error:
            print(f"brokers: the tests go without {each}: {error.message}", file=sys.stderr)
