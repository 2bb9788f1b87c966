"""python -m harness.fuzzing TARGET SECONDS FOLDER: give a target inputs for this time.

Coverage guides atheris, libFuzzer for Python (the extra `fuzz`), if it is installed; otherwise the inputs are random.
FOLDER/corpus gets the inputs that take a new path through the code.
"""

import argparse
import gc
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import chdir, closing, contextmanager, nullcontext
from itertools import islice
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

_guides = atheris is not None and __name__ == "__main__"
with atheris.instrument_imports(include=["tern", "ternhost"]) if _guides else nullcontext():
    from harness import host_targets, seeds, targets, verdicts
    from terntools.emulators.micropython import device_command, find_micropython
    from terntools.testing.device_tests import FIRMWARE

_ON_BOARD = ("ledger", "storage", "client", "ahead")
_ON_HOST = ("access", "serial", "aggregate")
TARGETS = sorted({*targets.PLAIN, *host_targets.PLAIN, *_ON_BOARD, *_ON_HOST})
_HANG = 20  # s; no input takes longer, even on a busy machine
_MEMORY = 1024  # MiB
_COMPARED = 200  # inputs of a target that MicroPython also gets,
_COMPARED_MORE = 10  # and more of them for every second
STATISTIC = re.compile(r"stat::number_of_executed_units:\s+(\d+)")
_EDGES = re.compile(r"cov: (\d+)")


@contextmanager
def target(name, folder):
    """A context with the function of that target, whose files are in `folder`."""
    if name in _ON_BOARD:
        yield getattr(targets.OnBoard(folder), name)
    elif name in _ON_HOST:
        with closing(host_targets.OnHost(folder)) as host:
            yield getattr(host, name)
    else:
        yield {**targets.PLAIN, **host_targets.PLAIN}[name]


def fuzz(seconds, seed=1):
    """(figures, findings) of fuzzing every target, several at a time, for `seconds` of a process in all."""
    share = max(1, round(seconds / len(TARGETS)))
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(prefix="tern-fuzz-", dir=memory) as folder:
        with ThreadPoolExecutor(os.cpu_count()) as several:
            runs = several.map(lambda name: _run(name, share, Path(folder) / name, seed), TARGETS)
            results = dict(zip(TARGETS, runs, strict=True))
        count = _COMPARED + int(_COMPARED_MORE * seconds)
        inputs = [pair for name in verdicts.NAMES for pair in _inputs(name, Path(folder) / name, count, seed)]
        different = differences(inputs, folder)
    figures = {
        "guided": atheris is not None,
        "inputs": {name: result["inputs"] for name, result in results.items()},
        "edges": {name: result["edges"] for name, result in results.items()},
        "compared with MicroPython": len(inputs),
    }
    return figures, [finding for result in results.values() for finding in result["findings"]] + different


def _run(name, seconds, folder, seed):
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    for i, data in enumerate(seeds.of(name)):
        (corpus / f"seed{i}").write_bytes(data)
    ended = subprocess.run(
        [sys.executable, "-m", "harness.fuzzing", name, str(seconds), str(folder), str(seed)],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    findings = []
    if ended.returncode:
        broke = [path.read_bytes().hex() for path in folder.glob("broke-*")]
        findings.append(f"fuzzing {name}: {', '.join(broke) or 'no input'}: {ended.stdout[-2000:]}")
    counted = STATISTIC.findall(ended.stdout)
    edges = _EDGES.findall(ended.stdout)
    return {
        "inputs": int(counted[-1]) if counted else 0,
        "edges": int(edges[-1]) if edges else None,
        "findings": findings,
    }


def _inputs(name, folder, count, seed):
    # Inputs for MicroPython: up to half of them from the corpus of the target, the others random.
    corpus = [path.read_bytes() for path in (folder / "corpus").iterdir()]
    random.Random(seed).shuffle(corpus)
    guided = corpus[: count // 2]
    blind = islice(seeds.blindly(seeds.of(name), seed), count - len(guided))
    return [(name, data) for data in (*guided, *blind)]


def differences(inputs, folder):
    """A line for each input of verdicts.py that CPython and the 32-bit MicroPython judge differently."""
    here, there = Path(folder) / "cpython", Path(folder) / "micropython"
    here.mkdir()
    there.mkdir()
    (there / "inputs").write_bytes(verdicts.pack(inputs))
    done = subprocess.run(
        device_command(find_micropython(), Path(verdicts.__file__), "inputs", heap="8M"),
        env={"MICROPYPATH": f"{FIRMWARE}:{Path(__file__).parents[1]}/device:.frozen"},
        cwd=there,
        capture_output=True,
        text=True,
        timeout=600,
    )
    on_micropython = done.stdout.splitlines()
    with chdir(here):
        on_cpython = [verdicts.verdict(name, data) for name, data in inputs]
    lines = [
        f"{name} {data.hex()}: CPython says {cpython}, MicroPython {micropython}"
        for (name, data), cpython, micropython in zip(inputs, on_cpython, on_micropython, strict=False)
        if cpython != micropython
    ]
    if len(on_micropython) != len(on_cpython):
        name, data = inputs[len(on_micropython)]
        lines.append(f"MicroPython ends at {name} {data.hex()}: {done.stderr[-1000:]}")
    return lines


def main():
    parser = argparse.ArgumentParser(prog="python -m harness.fuzzing", description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("seconds", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    args = parser.parse_args()
    with target(args.target, args.folder) as check:
        gc.freeze()  # a board collects garbage for every HELLO; the objects of the imports are none
        (_guided if atheris else _blindly)(check, args)


def _guided(check, args):
    options = {
        "max_total_time": args.seconds, "max_len": seeds.LARGEST, "timeout": _HANG, "rss_limit_mb": _MEMORY,
        "artifact_prefix": f"{args.folder}/broke-", "print_final_stats": 1, "use_value_profile": 1,
        "seed": args.seed,
    }  # fmt: skip
    words = [f"-{name}={value}" for name, value in options.items()]
    atheris.Setup([sys.argv[0], str(args.folder / "corpus"), *words], check)
    atheris.Fuzz()


def _blindly(check, args):
    end = time.monotonic() + args.seconds
    for count, data in enumerate(seeds.blindly(seeds.of(args.target), args.seed), 1):
        try:
            check(data)
        except BaseException:
            (args.folder / "broke-blindly").write_bytes(data)
            raise
        if time.monotonic() > end:
            print(f"stat::number_of_executed_units: {count}")
            return


if __name__ == "__main__":
    main()
