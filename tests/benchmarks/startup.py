"""Measures the CPU time in which programs start, beside that of Python and of `import numpy`.

    python -m benchmarks.startup [--repeats N] [--json]

The modules are compiled to bytecode before, as they are wherever tern is installed. Without that,
Python may compile all modules each time, which takes about as long as everything else.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

from benchmarks import machine, positive_count

_PYTHON = "Python alone"
_IMPORT_ALL = "import ternhost as t; [getattr(t, name) for name in t.__all__]"
PROGRAMS = {
    _PYTHON: ["-c", "pass"],
    "import numpy": ["-c", "import numpy"],
    "import ternhost": ["-c", "import ternhost"],
    "import ternhost, and use all of its names": ["-c", _IMPORT_ALL],
    "tern --version": ["-m", "ternhost", "--version"],
    "tern --help": ["-m", "ternhost", "--help"],
    "tern train --help": ["-m", "ternhost", "train", "--help"],
    "tern plan --help": ["-m", "ternhost", "plan", "--help"],
    "tern data --help": ["-m", "ternhost", "data", "--help"],
}


def cpu_seconds_of(words, environment):
    """Run a program, and return the CPU time that it has used, user and system."""
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, words
    return usage.ru_utime + usage.ru_stime


def run(repeats):
    """Start each program `repeats` times, in turns; return the least CPU time of each."""
    least = dict.fromkeys(PROGRAMS, float("inf"))
    with tempfile.TemporaryDirectory(prefix="tern-startup-") as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for words in PROGRAMS.values():
            cpu_seconds_of(words, environment)  # this compiles the modules
        for _ in range(repeats):
            for name, words in PROGRAMS.items():
                least[name] = min(least[name], cpu_seconds_of(words, environment))
    rows = []
    for name, seconds in least.items():
        times = seconds / least[_PYTHON]
        rows.append(
            {"program": name, "cpu_seconds": round(seconds, 3), "times_python": round(times, 1)}
        )
    return {"machine": machine(), "repeats": repeats, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description="Measure how long programs take to start.")
    parser.add_argument(
        "--repeats", type=positive_count, default=10, help="of which the fastest counts"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    args = parser.parse_args()
    result = run(args.repeats)
    if args.json:
        print(json.dumps(result, indent=1))
        return
    print(f"CPU seconds, the least of {result['repeats']}, on {result['machine']}")
    for each in result["rows"]:
        print(
            f"{each['program']:42} {each['cpu_seconds']:6.3f} s, {each['times_python']:5.1f} times"
        )


if __name__ == "__main__":
    main()
