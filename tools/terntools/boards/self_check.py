"""Checks a board's computations before it is trusted, since a miscompiled library computes wrong
gradients silently.

Compiled programs run beside plain twins on the board (constructs.py); the deployed library's
reports of fixed records and randomness must equal those made here (answers.py).
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import tempfile
from collections.abc import Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from types import ModuleType

import numpy as np

from tern import host_frames, wire
from tern.fixed import ONE
from ternhost.errors import TernError
from ternhost.privacy import mechanisms
from ternhost.privacy.accounting import Policy
from ternhost.provision import boards
from terntools.boards import answers, hiding, mpy
from terntools.boards.repl import GoneError, Repl, SilenceError

_CONSTRUCTS = Path(__file__).with_name("constructs.py")
_FOLDER = "/tern-check"  # on the board, while it is checked
_NATIVE, _PLAIN = "constructs_native", "constructs_plain"
_LONG = re.compile(r"^.*# repeated by .*\n", re.MULTILINE)
_TIMES = 40  # the branch over it is longer than over any loop of the library
_SECONDS = 30.0

# Known faults of compilers, by the constructs that show them.
_FAULTS: dict[str, str] = json.loads(Path(__file__).with_name("faults.json").read_text())
_KNOWN = {name: fault for fault, names in _FAULTS.items() for name in names.split()}

# Output of a board that crashes or restarts: QEMU's machines, ESP-IDF, MicroPython.
_CRASHES = ("crash: ", "Guru Meditation", "Fatal exception", "PANIC", "MicroPython v")

_DEVICE = 7
_KEY = bytes(range(wire.KEY_BYTES))  # of a device that is none
_D = 20
_EXPONENT = -14
_BUDGET = 1_000_000_000
_INPUTS = 64
# A card for each of the sampler's leaves, and every model's gradient.
_REPORTS = (
    ("three-outputs", wire.LOGISTIC, _D),
    ("pm-sub", wire.SVM, 7),
    ("laplace", wire.LINEAR, 5),
    ("hm-tp", wire.LOGISTIC, 3),
)


class MiscompiledError(TernError):
    """A board computes wrong results."""


def source(plain: bool = False) -> str:
    """constructs.py as a device gets it; plain: without its decorators."""
    text = _LONG.sub(lambda line: line[0] * _TIMES, _CONSTRUCTS.read_text())
    if not plain:
        return text
    text = re.sub(r"^@micropython\.viper\n|^import micropython\n", "", text, flags=re.MULTILINE)
    return text + "\n\ndef ptr8(value):\n    return value\n"


@cache
def _twin() -> ModuleType:
    module = ModuleType(_PLAIN)
    # It inherits that annotations are not evaluated, as on a device.
    exec(compile(source(plain=True), f"{_PLAIN}.py", "exec"), module.__dict__)
    return module


@cache
def expected() -> str:
    """The last line of a board that is right, by what the plain twins compute here."""
    lines: list[str] = []
    _twin().run(_twin(), _twin(), lambda *words: lines.append(" ".join(map(str, words))))
    return lines[-1]


def faults(output: str, exception: str = "") -> list[str]:
    """Explain the output of constructs.run(), and a crash or exception after it: a line for each
    known cause.

    Each line names the constructs that show its cause. Empty if all were right.
    """
    begun, last = "", ""
    shown_by: dict[str, list[str]] = {}  # cause -> constructs
    for word, _, rest in (line.partition(" ") for line in output.splitlines()):
        if word == "begin":
            begun = rest
        elif word == "end":
            last = f"{word} {rest}"
        elif word == "wrong":
            shown_by.setdefault(_KNOWN.get(rest, "not what its plain twin computes"), []).append(
                rest
            )
    lines = [f"{', '.join(names)}: {cause}" for cause, names in shown_by.items()]
    if not last:
        why = exception or _KNOWN.get(begun, "")
        lines.append(f"{begun or 'loading the programs'} stopped it" + (f": {why}" if why else ""))
    elif last != expected():
        lines.append("interpreter: even the plain twins compute something else than here")
    return lines


def _run(repl: Repl, files: dict[str, bytes], code: str) -> tuple[str, str]:
    """Output of `code` beside these files on the board, and the last line of its traceback; none
    after a crash.

    The board is reset, and left as it was unless it crashes. Raises TernError, also where it may
    have been unplugged.
    """
    with _on_board(repl, files):
        try:
            output, traceback = repl.execute(code, _SECONDS)
        except SilenceError as silence:
            if isinstance(silence, GoneError) and not any(
                sign in silence.output for sign in _CRASHES
            ):
                raise
            return silence.output, ""
    return output, traceback.strip().rpartition("\n")[2]


def require_compiler(repl: Repl, processor: str) -> None:
    """Raise MiscompiledError where what mpy-cross makes for `processor` does not compute right on
    this board.
    """
    texts = {_PLAIN: source(plain=True), _NATIVE: source()}
    files = {
        f"{name}.mpy": mpy.compiled(text, processor, f"{name}.py", optimise=True)
        for name, text in texts.items()
    }
    code = f"import {_PLAIN}, {_NATIVE}\n{_PLAIN}.run({_NATIVE}, {_PLAIN})\n"
    output, exception = _run(repl, files, hiding.IGNORE_ROOT + code)
    if lines := faults(output, exception):
        what = "does not suit" if exception else "miscompiles for"
        raise MiscompiledError(
            f"{mpy.compiler_version()} {what} the board on {repl.name} ({processor}): {'; '.join(lines)}",
            hint="its reports would be wrong, so nothing was deployed; install the compiler that tern was tested with: "
            f"python -m pip install {mpy.COMPILER}",
        )


def _cards() -> list[bytes]:
    return [
        mechanisms.design(name, "1", levels=15 if name == "pm-sub" else None).card
        for name, _, _ in _REPORTS
    ]


def _rows() -> list[list[int]]:
    return [[(7919 * (21 * i + j)) % (2 * ONE) - ONE for j in range(_D + 1)] for i in range(5)]


def _parameters(number: int) -> list[int]:
    return [(4801 * j * number) % 65536 - 32768 for j in range(_D)]


def _rounds() -> list[bytes]:
    made = []
    out = bytearray(wire.MAX_FRAME)
    for number, (card, (_, model, k)) in enumerate(zip(_cards(), _REPORTS, strict=True), 1):
        values = _parameters(number)
        n = host_frames.encode_round(
            out, _KEY, _DEVICE, number, model, values, card, k, _EXPONENT, batch=3
        )
        made.append(bytes(out[:n]))
    return made


def board_files() -> dict[str, bytes]:
    """The files of the device that answers the ROUNDs: path below its directory -> content."""
    return boards.board_files(
        _DEVICE, [_KEY], np.array(_rows(), np.int16), Policy(_BUDGET, _BUDGET)
    )


def program(directory: str) -> str:
    """The text that prints, with answers.py, what the library makes; the device's files are in
    `directory`.
    """
    lines = ["from answers import of_card, of_gradient, of_rounds"]
    lines += [f"print(of_card({card!r}, {_INPUTS}))" for card in _cards()]
    lines += [
        f"print(of_gradient({model}, {_parameters(model)!r}, {_EXPONENT}, {_rows()!r}))"
        for model in (wire.LINEAR, wire.LOGISTIC, wire.SVM)
    ]
    lines.append(f"for _a in of_rounds({directory!r}, {_rounds()!r}): print(_a)")
    return "\n".join(lines)


@cache
def expected_answers() -> tuple[str, ...]:
    with tempfile.TemporaryDirectory(prefix="tern-check-") as folder:
        for path, data in board_files().items():
            target = Path(folder, path)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program(folder).replace("answers", answers.__name__, 1), {})
    return tuple(printed.getvalue().splitlines())


def library_answers(repl: Repl) -> tuple[str, ...]:
    """The lines that `program` prints on a board; an exception comes last.

    See _run for what it does to the board.
    """
    files = {f"board/{path}": data for path, data in board_files().items()}
    files["answers.py"] = Path(answers.__file__).read_bytes()
    output, exception = _run(repl, files, program(f"{_FOLDER}/board"))
    return tuple(line for line in [*output.splitlines(), exception] if line)


def has_module(repl: Repl, name: str) -> bool:
    """Whether it is on the board, however it came there: deployed, compiled by the board, or
    frozen.
    """
    _, traceback = repl.execute(f"import {name}", _SECONDS)
    return "ImportError" not in traceback


def require_library(repl: Repl) -> None:
    """Raise MiscompiledError where the library on the board makes anything else than it makes here."""
    for there, here in zip_longest(library_answers(repl), expected_answers(), fillvalue="nothing"):
        if there != here:
            kind = here.split()[0]
            what = f"a wrong {kind}" if there.startswith(f"{kind} ") else f"no {kind} ({there})"
            hint = "do not use reports of this board; tern deploy BOARD puts the library on it anew"
            raise MiscompiledError(f"the library on {repl.name} computes {what}", hint)


@contextlib.contextmanager
def _on_board(repl: Repl, files: dict[str, bytes]) -> Iterator[None]:
    """Files in a folder of their own, first where the board looks for modules, while the context is
    open.
    """
    repl.soft_reset()
    try:
        for path, data in files.items():
            repl.write_file(f"{_FOLDER}/{path}", data)
        repl.run(f"import sys\nsys.path.insert(0, {_FOLDER!r})")
        yield
    finally:
        with contextlib.suppress(TernError):  # one that crashed is gone, or starts anew
            if not repl.at_prompt:
                repl.enter()
            repl.soft_reset()
            repl.remove_tree(_FOLDER)
