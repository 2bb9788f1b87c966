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
from terntools.boards.prompt_errors import GoneError, SilenceError
from terntools.boards.repl import Repl

_CONSTRUCTS = Path(__file__).with_name("constructs.py")
_FOLDER = "/tern-check"  # on the board, while it is checked
_NATIVE, _PLAIN = "constructs_native", "constructs_plain"  # names of modules on the board
_LONG = re.compile(r"^.*# repeated by .*\n", re.MULTILINE)  # the line of long_way that is repeated
_TIMES = 40  # the branch over it is then longer than over any loop of the library
_SECONDS = 30.0  # without output, after which a board is given up

# Known faults of compilers: the words for each, with the programs of constructs.py that show it; and
# the words by program.
_FAULTS: dict[str, str] = json.loads(Path(__file__).with_name("faults.json").read_text())
_FAULT_OF: dict[str, str] = {}
for _fault, _names in _FAULTS.items():
    _FAULT_OF.update(dict.fromkeys(_names.split(), _fault))

# Output of a board that crashes or restarts: QEMU's machines, ESP-IDF, MicroPython.
_CRASHES = ("crash: ", "Guru Meditation", "Fatal exception", "PANIC", "MicroPython v")

# The device that exists only for the check, its records and the rounds that it answers.
_DEVICE = 7
_KEY = bytes(range(wire.KEY_BYTES))
_DIMENSION = 20  # of the records' features and the models' parameters
_EXPONENT = -14  # a parameter p stands for p * 2^-14
_BUDGET = 1_000_000_000  # millionths; enough for all reports
_INPUTS = 64  # values to which each mechanism is applied
_RECORDS = 5
# The mechanism, the model and the number of values of each report. Together they use every branch
# of the sampler, and every model.
_REPORTS = (
    ("three-outputs", wire.LOGISTIC, _DIMENSION),
    ("pm-sub", wire.SVM, 7),
    ("laplace", wire.LINEAR, 5),
    ("hm-tp", wire.LOGISTIC, 3),
)


class MiscompiledError(TernError):
    """A board computes wrong results."""


def source(plain: bool = False) -> str:
    """Return the text of constructs.py as a device gets it, with one line repeated many times.

    plain: without the decorators that make MicroPython compile the programs to machine code.
    """
    text = _LONG.sub(lambda line: line[0] * _TIMES, _CONSTRUCTS.read_text())
    if not plain:
        return text
    text = re.sub(r"^@micropython\.viper\n|^import micropython\n", "", text, flags=re.MULTILINE)
    # A cast of viper, which plain Python does not have.
    return text + "\n\ndef ptr8(value):\n    return value\n"


@cache
def _twin() -> ModuleType:
    """Return the plain programs as a module of this interpreter."""
    module = ModuleType(_PLAIN)
    # The compiled code inherits this file's `from __future__ import annotations`: annotations such
    # as ptr8 are not evaluated, as on a device.
    exec(compile(source(plain=True), f"{_PLAIN}.py", "exec"), module.__dict__)
    return module


@cache
def expected() -> str:
    """Return the last line that a correct board prints: a checksum of what all programs compute.

    For that the plain programs run on this interpreter.
    """
    lines: list[str] = []

    def say(*words: object) -> None:
        lines.append(" ".join(map(str, words)))

    module = _twin()
    module.run(native=module, plain=module, say=say)
    return lines[-1]


def faults(output: str, exception: str = "") -> list[str]:
    """Explain what constructs.run() has printed on a board, in a line for each fault.

    A line has the names of the programs that show the fault. There are none if everything was
    right. exception: the last line of the traceback, if the run ended by an exception; a run that
    ends before its last line has crashed the board.
    """
    running_construct = ""
    last_line = ""
    constructs_by_cause: dict[str, list[str]] = {}
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
        stopped = running_construct or "loading the programs"
        line = f"{stopped} stopped it"
        cause_of_stop = exception or _FAULT_OF.get(running_construct, "")
        if cause_of_stop:
            line += f": {cause_of_stop}"
        lines.append(line)
    elif last_line != expected():
        lines.append("interpreter: even the plain twins compute something else than here")
    return lines


def _run(repl: Repl, files: dict[str, bytes], code: str) -> tuple[str, str]:
    """Run `code` on the board, where it can import these files.

    Returns its output, and the last line of its traceback ("" if there is none, as after a crash).
    The board is reset, and has no other files afterwards than before. Raises TernError, also if the
    board has disappeared without a sign of a crash: it may have been unplugged.
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
    """Return whether a board's output has a line that it prints when it crashes or restarts."""
    return any(sign in output for sign in _CRASHES)


def require_compiler(repl: Repl, processor: str) -> None:
    """Raise MiscompiledError if what mpy-cross compiles for this board computes wrong results.

    processor: of the board, as mpy-cross calls it.
    """
    files = {}
    for name, text in ((_PLAIN, source(plain=True)), (_NATIVE, source())):
        files[f"{name}.mpy"] = mpy.compiled(text, processor, f"{name}.py", optimise=True)
    code = f"import {_PLAIN}, {_NATIVE}\n{_PLAIN}.run({_NATIVE}, {_PLAIN})\n"
    output, exception = _run(repl, files, hiding.IGNORE_ROOT + code)
    lines = faults(output, exception)
    if lines:
        verdict = "miscompiles for"
        if exception:
            verdict = "does not suit"
        raise MiscompiledError(
            f"{mpy.compiler_version()} {verdict} the board on {repl.name} ({processor}): "
            f"{'; '.join(lines)}",
            hint="its reports would be wrong, so nothing was deployed; install the compiler that "
            f"tern was tested with: python -m pip install {mpy.COMPILER}",
        )


def _cards() -> list[bytes]:
    """Return the card of each report: the certified table from which the device samples."""
    cards = []
    for mechanism, _, _ in _REPORTS:
        levels = None
        if mechanism == "pm-sub":
            levels = 15
        cards.append(mechanisms.design(mechanism, "1", levels=levels).card)
    return cards


def _rows() -> list[list[int]]:
    """Return the device's records, in 16 bits with 14 behind the point (Q1.14).

    A record has its features and then its label, from -1 to 1. They look random, and are the same
    everywhere: multiples of a prime, modulo the range.
    """
    columns = _DIMENSION + 1
    rows = []
    for row in range(_RECORDS):
        values = []
        for column in range(columns):
            position = 21 * row + column
            values.append((7919 * position) % (2 * ONE) - ONE)
        rows.append(values)
    return rows


def _parameters(number: int) -> list[int]:
    """Return parameters of the model in round `number` (int16), which look random."""
    return [(4801 * i * number) % 65536 - 32768 for i in range(_DIMENSION)]


def _rounds() -> list[bytes]:
    """Return the ROUND frames that ask the device for the reports, in the order of _REPORTS.

    A ROUND is a host's request for one report. It has the model, its parameters, and the card: the
    certified table from which the device samples the values that it reports.
    """
    frames = []
    frame = bytearray(wire.MAX_FRAME)
    reports = zip(_cards(), _REPORTS, strict=True)
    for number, (card, (_, model, value_count)) in enumerate(reports, 1):
        parameters = _parameters(number)
        size = host_frames.encode_round(
            frame,
            key=_KEY,
            device=_DEVICE,
            round_number=number,
            model=model,
            parameters=parameters,
            card=card,
            k=value_count,
            exponent=_EXPONENT,
            batch=3,  # records, of the five that the device has
        )
        frames.append(bytes(frame[:size]))
    return frames


def board_files() -> dict[str, bytes]:
    """Return the files of the device that answers the ROUNDs, by their path in its directory."""
    rows = np.array(_rows(), np.int16)
    return boards.board_files(_DEVICE, [_KEY], rows, Policy(_BUDGET, _BUDGET))


def program(directory: str) -> str:
    """Return a program that prints what the library computes, a line for each result.

    The results are samples of each mechanism (of_card), gradients of three models (of_gradient),
    and the reports that a device makes (of_rounds). These functions are in answers.py, which must be
    beside the program. directory: where the files of the device that makes the reports are.
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
    """Return the lines that `program` prints on this interpreter, with the library's sources."""
    with tempfile.TemporaryDirectory(prefix="tern-check-") as folder:
        for path, data in board_files().items():
            target = Path(folder, path)
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(data)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            # On this machine the module answers is within a package.
            exec(program(folder).replace("answers", answers.__name__, 1), {})
    return tuple(printed.getvalue().splitlines())


def library_answers(repl: Repl) -> tuple[str, ...]:
    """Run `program` on a board, and return the lines that it prints.

    After an exception, the last line of the traceback is the last one. The board is reset.
    """
    files = {f"board/{path}": data for path, data in board_files().items()}
    files["answers.py"] = Path(answers.__file__).read_bytes()
    output, exception = _run(repl, files, program(f"{_FOLDER}/board"))
    lines = [*output.splitlines(), exception]
    return tuple(line for line in lines if line)


def has_module(repl: Repl, name: str) -> bool:
    """Return whether the board can import a module, from a file or built into its firmware."""
    _, traceback = repl.execute(f"import {name}", _SECONDS)
    return "ImportError" not in traceback


def require_library(repl: Repl) -> None:
    """Raise MiscompiledError if the library on the board computes anything else than here."""
    pairs = zip_longest(library_answers(repl), expected_answers(), fillvalue="nothing")
    for board_line, expected_line in pairs:
        if board_line != expected_line:
            answer_kind = expected_line.split()[0]  # such as "report"
            verdict = f"no {answer_kind} ({board_line})"
            if board_line.startswith(f"{answer_kind} "):
                verdict = f"a wrong {answer_kind}"
            hint = "do not use reports of this board; 'tern board deploy BOARD' installs the library again"
            raise MiscompiledError(f"the library on {repl.name} computes {verdict}", hint)


@contextlib.contextmanager
def _on_board(repl: Repl, files: dict[str, bytes]) -> Iterator[None]:
    """Put files where the board looks for modules first, and remove them when the context ends.

    The board is reset before and after.
    """
    repl.soft_reset()
    try:
        for path, data in files.items():
            repl.files.write(f"{_FOLDER}/{path}", data)
        repl.run(f"import sys\nsys.path.insert(0, {_FOLDER!r})")
        yield
    finally:
        with contextlib.suppress(TernError):  # one that crashed is gone, or starts anew
            if not repl.at_prompt:
                repl.enter()
            repl.soft_reset()
            repl.files.remove_tree(_FOLDER)
