"""Checks a board's computations before it is trusted: a miscompiled library is silently wrong.

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
_FAULT_OF: dict[str, str] = {}
for _fault, _names in _FAULTS.items():
    _FAULT_OF.update(dict.fromkeys(_names.split(), _fault))

# Output of a board that crashes or restarts: QEMU's machines, ESP-IDF, MicroPython.
_CRASHES = ("crash: ", "Guru Meditation", "Fatal exception", "PANIC", "MicroPython v")

_DEVICE = 7
_KEY = bytes(range(wire.KEY_BYTES))  # of a device that is none
_DIMENSION = 20  # of the records' features and the models' parameters
_EXPONENT = -14
_BUDGET = 1_000_000_000  # millionths; enough for all reports
_INPUTS = 64  # that each card's mechanism gets
_RECORDS = 5
# Mechanism, model and values of each report: one for each of the sampler's leaves and each model.
_REPORTS = (
    ("three-outputs", wire.LOGISTIC, _DIMENSION),
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
    """The plain programs as a module of this interpreter."""
    module = ModuleType(_PLAIN)
    # It inherits that annotations are not evaluated, as on a device.
    exec(compile(source(plain=True), f"{_PLAIN}.py", "exec"), module.__dict__)
    return module


@cache
def expected() -> str:
    """Return the last line that a correct board prints, by what the plain twins compute here."""
    lines: list[str] = []

    def say(*words: object) -> None:
        lines.append(" ".join(map(str, words)))

    _twin().run(_twin(), _twin(), say)
    return lines[-1]


def faults(output: str, exception: str = "") -> list[str]:
    """Explain the output of constructs.run(), and a crash or exception after it.

    Returns a line for each cause, with the constructs that show it; none if all were right.
    """
    running_construct, last_line = "", ""
    constructs_by_cause: dict[str, list[str]] = {}  # by the cause that they show
    for line in output.splitlines():
        event, _, construct = line.partition(" ")
        if event == "begin":
            running_construct = construct
        elif event == "end":
            last_line = line
        elif event == "wrong":
            cause = _FAULT_OF.get(construct, "not what its plain twin computes")
            constructs_by_cause.setdefault(cause, []).append(construct)

    lines = [f"{', '.join(names)}: {cause}" for cause, names in constructs_by_cause.items()]
    if not last_line:
        stopped_construct = running_construct or "loading the programs"
        cause_of_stop = exception or _FAULT_OF.get(running_construct, "")
        lines.append(
            f"{stopped_construct} stopped it: {cause_of_stop}"
            if cause_of_stop
            else f"{stopped_construct} stopped it"
        )
    elif last_line != expected():
        lines.append("interpreter: even the plain twins compute something else than here")
    return lines


def _run(repl: Repl, files: dict[str, bytes], code: str) -> tuple[str, str]:
    """Run `code` on the board beside these files.

    Returns its output, and the last line of its traceback; after a crash there is no traceback. The
    board is reset, and left as it was unless it crashes. Raises TernError, also if the board may
    have been unplugged.
    """
    with _on_board(repl, files):
        try:
            output, traceback = repl.execute(code, _SECONDS)
        except GoneError as gone:
            if not _shows_crash(gone.output):
                raise
            return gone.output, ""
        except SilenceError as silence:
            return silence.output, ""
    return output, traceback.strip().rpartition("\n")[2]


def _shows_crash(output: str) -> bool:
    return any(sign in output for sign in _CRASHES)


def require_compiler(repl: Repl, processor: str) -> None:
    """Raise MiscompiledError if mpy-cross does not compile right for this board.

    processor: as mpy-cross calls it.
    """
    files = {}
    for name, text in ((_PLAIN, source(plain=True)), (_NATIVE, source())):
        files[f"{name}.mpy"] = mpy.compiled(text, processor, f"{name}.py", optimise=True)
    code = f"import {_PLAIN}, {_NATIVE}\n{_PLAIN}.run({_NATIVE}, {_PLAIN})\n"
    output, exception = _run(repl, files, hiding.IGNORE_ROOT + code)
    lines = faults(output, exception)
    if lines:
        verdict = "does not suit" if exception else "miscompiles for"
        raise MiscompiledError(
            f"{mpy.compiler_version()} {verdict} the board on {repl.name} ({processor}): "
            f"{'; '.join(lines)}",
            hint="its reports would be wrong, so nothing was deployed; install the compiler that "
            f"tern was tested with: python -m pip install {mpy.COMPILER}",
        )


def _cards() -> list[bytes]:
    """The cards of the reports."""
    cards = []
    for mechanism, _, _ in _REPORTS:
        levels = 15 if mechanism == "pm-sub" else None
        cards.append(mechanisms.design(mechanism, "1", levels=levels).card)
    return cards


def _rows() -> list[list[int]]:
    """Records of the device (Q1.14), which look random: their features, then their labels."""
    columns = _DIMENSION + 1
    return [
        [(7919 * (21 * row + column)) % (2 * ONE) - ONE for column in range(columns)]
        for row in range(_RECORDS)
    ]


def _parameters(number: int) -> list[int]:
    """Parameters of the model in round `number` (int16), which look random."""
    return [(4801 * i * number) % 65536 - 32768 for i in range(_DIMENSION)]


def _rounds() -> list[bytes]:
    """Return the ROUND frame of each report."""
    frames = []
    frame = bytearray(wire.MAX_FRAME)
    for number, (card, (_, model, value_count)) in enumerate(
        zip(_cards(), _REPORTS, strict=True), 1
    ):
        parameters = _parameters(number)
        size = host_frames.encode_round(
            frame, _KEY, _DEVICE, number, model, parameters, card, value_count, _EXPONENT, batch=3
        )
        frames.append(bytes(frame[:size]))
    return frames


def board_files() -> dict[str, bytes]:
    """The files of the device that answers the ROUNDs: path below its directory -> content."""
    rows = np.array(_rows(), np.int16)
    return boards.board_files(_DEVICE, [_KEY], rows, Policy(_BUDGET, _BUDGET))


def program(directory: str) -> str:
    """Return the program that prints, with answers.py, what the library computes.

    directory: where the device's files are.
    """
    lines = ["from answers import of_card, of_gradient, of_rounds"]
    for card in _cards():
        lines.append(f"print(of_card({card!r}, {_INPUTS}))")
    for model in (wire.LINEAR, wire.LOGISTIC, wire.SVM):
        arguments = f"{model}, {_parameters(model)!r}, {_EXPONENT}, {_rows()!r}"
        lines.append(f"print(of_gradient({arguments}))")
    lines.append(f"for line in of_rounds({directory!r}, {_rounds()!r}): print(line)")
    return "\n".join(lines)


@cache
def expected_answers() -> tuple[str, ...]:
    """Return the lines that `program` prints here, from the source of the library."""
    with tempfile.TemporaryDirectory(prefix="tern-check-") as folder:
        for path, data in board_files().items():
            target = Path(folder, path)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(program(folder).replace("answers", answers.__name__, 1), {})
    return tuple(printed.getvalue().splitlines())


def library_answers(repl: Repl) -> tuple[str, ...]:
    """The lines that `program` prints on a board, which is reset; an exception comes last."""
    files = {f"board/{path}": data for path, data in board_files().items()}
    files["answers.py"] = Path(answers.__file__).read_bytes()
    output, exception = _run(repl, files, program(f"{_FOLDER}/board"))
    return tuple(line for line in [*output.splitlines(), exception] if line)


def has_module(repl: Repl, name: str) -> bool:
    """Whether a module is on the board: deployed, compiled by the board, or frozen."""
    _, traceback = repl.execute(f"import {name}", _SECONDS)
    return "ImportError" not in traceback


def require_library(repl: Repl) -> None:
    """Raise MiscompiledError if the library on the board computes anything else than here."""
    for board_line, expected_line in zip_longest(
        library_answers(repl), expected_answers(), fillvalue="nothing"
    ):
        if board_line != expected_line:
            answer_kind = expected_line.split()[0]
            verdict = (
                f"a wrong {answer_kind}"
                if board_line.startswith(f"{answer_kind} ")
                else f"no {answer_kind} ({board_line})"
            )
            hint = "do not use reports of this board; tern deploy BOARD puts the library on it anew"
            raise MiscompiledError(f"the library on {repl.name} computes {verdict}", hint)


@contextlib.contextmanager
def _on_board(repl: Repl, files: dict[str, bytes]) -> Iterator[None]:
    """Put files where the board looks for modules first, while the context is open."""
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
