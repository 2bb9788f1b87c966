"""python -m harness.fuzzing TARGET SECONDS FOLDER: fuzz a target for a time or, with --inputs, a number.

Coverage guides atheris, libFuzzer for Python, if it is installed as by `make soak`; otherwise the
inputs are random. FOLDER/corpus gets the inputs that take a new path through the code.
"""

import argparse
import gc
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import chdir, closing, contextmanager, nullcontext
from itertools import islice, repeat
from pathlib import Path

try:
    import atheris
except ImportError:
    atheris = None

_guides = atheris is not None and __name__ == "__main__"
with atheris.instrument_imports(include=["tern", "ternhost"]) if _guides else nullcontext():
    from harness import host_targets, seeds, targets, verdicts
    from terntools.emulators.micropython import device_command, find_micropython
    from terntools.emulators.unix_fleet import FIRMWARE

_TESTS = Path(__file__).parents[1]
_ON_BOARD = ("client", "ahead")
_ON_HOST = ("access", "serial", "aggregate")
TARGETS = sorted({*host_targets.PLAIN, *_ON_BOARD, *_ON_HOST, *verdicts.NAMES})
_HANG = 20  # s; no input takes longer, even on a busy machine
_MEMORY = 1024  # MiB
_COMPARED = 200  # inputs of a target that MicroPython also gets,
_COMPARED_MORE = 10  # and more of them for every second,
_BATCH = 2000  # so many at a time
_SHOWN = 10  # differences of a target
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
    elif function := host_targets.PLAIN.get(name):
        yield function
    else:
        with chdir(folder):
            yield lambda data: verdicts.verdict(name, data) and None


def fuzz(seconds, seed=1, inputs=0, names=TARGETS):
    """(figures, findings) of fuzzing these targets, several at a time, for `seconds` of a process
    in all.

    With `inputs`: at least so many altered inputs in all instead, and a tenth of them also on
    32-bit MicroPython.
    """
    judged = [name for name in names if name in verdicts.NAMES]
    share = math.ceil(inputs / len(names)) if inputs else max(1, round(seconds / len(names)))
    count = math.ceil(inputs / 10 / max(1, len(judged))) or _COMPARED + int(
        _COMPARED_MORE * seconds
    )
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    results, findings, compared = {}, [], {}
    with tempfile.TemporaryDirectory(prefix="tern-fuzz-", dir=memory) as folder:
        folders = {name: Path(folder) / name for name in names}
        with ThreadPoolExecutor(os.cpu_count()) as several:
            runs = several.map(
                lambda name: _run(name, share, bool(inputs), folders[name], seed), names
            )
            for name, result in zip(names, runs, strict=True):
                results[name] = result
                findings += result["findings"]
                _say(name, result["inputs"], result["findings"])
        with ProcessPoolExecutor(os.cpu_count()) as several:
            runs = several.map(
                _compare, judged, map(folders.get, judged), repeat(count), repeat(seed)
            )
            for name, (compared[name], different) in zip(judged, runs, strict=True):
                findings += different
                _say(f"{name} on MicroPython too", compared[name], different)
    figures = {
        "guided": atheris is not None,
        "inputs": {name: result["inputs"] for name, result in results.items()},
        "edges": {name: result["edges"] for name, result in results.items()},
        "inputs of MicroPython": compared,
    }
    for interpreter, done, least in (
        ("CPython", figures["inputs"], inputs),
        ("MicroPython", compared, inputs // 10),
    ):
        if sum(done.values()) < least:
            findings.append(
                f"fuzzing: {interpreter} had {sum(done.values()):,} inputs instead of {least:,}"
            )
    return figures, findings


def _say(name, inputs, findings):
    print(
        f"fuzzing: {name}: {inputs:,} inputs, {len(findings)} findings", file=sys.stderr, flush=True
    )


def _run(name, share, counts, folder, seed):
    corpus = folder / "corpus"
    corpus.mkdir(parents=True)
    start = seeds.of(name)
    for i, data in enumerate(start):
        (corpus / f"seed{i}").write_bytes(data)
    limit = ["--inputs", share + len(start)] if counts else []
    command = [
        sys.executable,
        "-m",
        "harness.fuzzing",
        name,
        *map(str, (share, folder, seed, *limit)),
    ]
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ended = subprocess.run(command, cwd=_TESTS, text=True, errors="replace", **streams)
    findings = []
    if ended.returncode:
        broke = [path.read_bytes().hex() for path in folder.glob("broke-*")]
        findings.append(f"fuzzing {name}: {', '.join(broke) or 'no input'}: {ended.stdout[-2000:]}")
    counted, edges = STATISTIC.findall(ended.stdout), _EDGES.findall(ended.stdout)
    return {
        "inputs": max(0, int(counted[-1]) - len(start)) if counted else 0,
        "edges": int(edges[-1]) if edges else None,
        "findings": findings,
    }


def _compare(name, folder, count, seed):
    # (number of altered inputs, differences) of a target
    inputs = _inputs(name, folder, count, seed)
    different = []
    for at in range(0, len(inputs), _BATCH):
        with tempfile.TemporaryDirectory(dir=folder) as work:
            different += differences(inputs[at : at + _BATCH], work)
    more = (
        [f"fuzzing {name}: {len(different) - _SHOWN} more differences"]
        if len(different) > _SHOWN
        else []
    )
    return len(inputs), different[:_SHOWN] + more


def _inputs(name, folder, count, seed):
    # Inputs for MicroPython: up to half of them from the corpus of the target, the others random.
    corpus = [
        path.read_bytes() for path in (folder / "corpus").iterdir() if not path.match("seed*")
    ]
    random.Random(seed).shuffle(corpus)
    guided = corpus[: count // 2]
    blind = islice(seeds.blindly(seeds.of(name), seed), count - len(guided))
    return [(name, data) for data in (*guided, *blind)]


def differences(inputs, folder):
    """A line for each input of verdicts.py that CPython or the 32-bit MicroPython treats wrongly,
    or that they judge differently.
    """
    here, there = Path(folder) / "cpython", Path(folder) / "micropython"
    here.mkdir()
    there.mkdir()
    (there / "inputs").write_bytes(verdicts.pack(inputs))
    command = device_command(find_micropython(), Path(verdicts.__file__), "inputs", heap="8M")
    env = {"MICROPYPATH": f"{FIRMWARE}:{_TESTS}/device:{_TESTS}:.frozen"}
    done = subprocess.run(command, env=env, cwd=there, capture_output=True, text=True, timeout=600)
    on_micropython = done.stdout.splitlines()
    with chdir(here):
        on_cpython = [verdicts.judged(name, data) for name, data in inputs]
    lines = [
        f"{name} {data.hex()}: CPython says {cpython}, MicroPython {micropython}"
        for (name, data), cpython, micropython in zip(
            inputs, on_cpython, on_micropython, strict=False
        )
        if cpython != micropython or cpython.startswith(verdicts.WRONG)
    ]
    if len(on_micropython) != len(on_cpython):
        name, data = inputs[len(on_micropython)]
        lines.append(f"MicroPython ends at {name} {data.hex()}: {done.stderr[-1000:]}")
    return lines


def main():
    parser = argparse.ArgumentParser(
        prog="python -m harness.fuzzing", description=__doc__.splitlines()[0]
    )
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("seconds", type=int)
    parser.add_argument("folder", type=Path)
    parser.add_argument("seed", type=int, nargs="?", default=1)
    parser.add_argument("--inputs", type=int, default=0)
    args = parser.parse_args()
    with target(args.target, args.folder) as check:
        gc.freeze()  # a board collects garbage for every HELLO; the objects of the imports are none
        (_guided if atheris else _blindly)(check, args)


def _guided(check, args):
    end = {"runs": args.inputs} if args.inputs else {"max_total_time": args.seconds}
    options = {
        "max_len": seeds.LARGEST,
        "timeout": _HANG,
        "rss_limit_mb": _MEMORY,
        "print_final_stats": 1,
        "artifact_prefix": f"{args.folder}/broke-",
        "use_value_profile": 1,
        "seed": args.seed,
        **end,
    }
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
        if count == args.inputs or (not args.inputs and time.monotonic() > end):
            print(f"stat::number_of_executed_units: {count}")
            return


if __name__ == "__main__":
    main()
