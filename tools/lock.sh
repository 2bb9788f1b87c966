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

# lock NAME OPTION...: for every platform, and one version for all Pythons.
lock() {
    file=$locks/$1.txt
    shift
    "$venv/bin/uv" pip compile --quiet --python "$venv/bin/python" --python-version 3.11 --universal \
        --fork-strategy fewest --generate-hashes --build-constraints "$locks/build.txt" \
        --custom-compile-command 'make lock' --output-file "$file" $upgrade "$@"
}

lock build --group build
lock dev pyproject.toml --extra dev --constraints "$locks/build.txt"
for name in docs fuzz; do
    lock $name --group $name --constraints "$locks/dev.txt" # into .venv, where dev already is
done
for name in lock miscompiling stubs-esp32 stubs-rp2; do
    lock $name --group $name
done
