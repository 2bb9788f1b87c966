"""Ledgers that are wrong on purpose: the vectors of ledger.md must tell each of them from the right one."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import ledger_vectors
import pytest

from tern import ledger

ROOT = Path(__file__).parents[2]
SOURCE = Path(ledger.__file__).read_text()
CASES: dict[str, Any] = json.loads((ROOT / "shared_specs/vectors/ledger.json").read_text())

# What a mutation does -> (text of ledger.py, what stands there instead).
MUTATIONS = {
    "the check is not looked at": ('or pack("<I", crc32(view[:end])) != view[end : end + _CHECK]', ""),
    "a file cut within its check is read": (
        "if size < end + _CHECK or",
        "if size < end + _CHECK - 1 or",
    ),
    "any magic will do": ("if magic != MAGIC:", "if False:"),
    "more may be spent than the budget": ("not spent <= budget <= MAX_BUDGET", "budget > MAX_BUDGET"),
    "any budget": ("not spent <= budget <= MAX_BUDGET", "spent > budget"),
    "round 2**30": ("or last > _MAX_ROUND", "or last > _MAX_ROUND + 1"),
    "state 3": ("or state > RESERVED\n", "or state > RESERVED + 1\n"),
    "a reserved ledger with a question": ("or (state == RESERVED and asked)", ""),
    "byte 49": ("            or reserved\n", ""),
    "any length of a report": ("_MIN_REPORT <= n <= _MAX_REPORT if", "True if"),
    "a report in every state": ("state == ANSWERED else n == 0)", "True else True)"),
    "spent while idle": ("(spent or asked if", "(asked if"),
    "a question while idle": ("(spent or asked if", "(spent if"),
    "idle at round 0 only": ("(spent or asked if", "(spent or asked or last if"),
    "answered for nothing": ("not (spent and last)", "not last"),
    "answered without a round": ("not (spent and last)", "not spent"),
    "a free report": ("not 0 < cost <= left", "not 0 <= cost <= left"),
    "one micro-epsilon too much": ("not 0 < cost <= left", "not 0 < cost <= left + 1"),
    "the last micro-epsilon is kept": ("not 0 < cost <= left", "not 0 < cost < left"),
    "a payment for round 2**30": ("round_number <= _MAX_ROUND\n", "round_number <= _MAX_ROUND + 1\n"),
    "the last round is not answered": ("round_number <= _MAX_ROUND\n", "round_number < _MAX_ROUND\n"),
    "reports of any length": ("not (_MIN_REPORT <= len(report) <= _MAX_REPORT or not report)", "False"),
    "what came to nothing is refused": ("<= _MAX_REPORT or not report)", "<= _MAX_REPORT)"),
    "what came to nothing is called answered": (
        "            self.state = RESERVED\n        self._set(q",
        "        self._set(q",
    ),
    "what came to nothing keeps its question": (
        "            question = _NO_QUESTION\n            self.state",
        "            self.state",
    ),
    "the longest report is refused": ("<= _MAX_REPORT or not report)", "< _MAX_REPORT or not report)"),
    "covered whatever the round": ("round_number <= self._until and", ""),
    "covered whatever the cost": ("and cost <= self._paid - spent", "and self._paid"),
    "the round after those reserved": ("round_number <= self._until", "round_number <= self._until + 1"),
    "the last round reserved is paid again": ("round_number <= self._until", "round_number < self._until"),
    "covered to the last micro-epsilon but one": ("cost <= self._paid - spent", "cost < self._paid - spent"),
    "more is reserved than the budget pays for": ("min(ahead, left // cost, ", "min(ahead, "),
    "rounds above 2**30 - 1 are reserved": (", _MAX_ROUND - round_number + 1)", ")"),
    "the last round is not reserved": ("_MAX_ROUND - round_number + 1)", "_MAX_ROUND - round_number)"),
    "one is reserved": ("if ahead > 1:", "if ahead > 0:"),
    "two are not reserved": ("if ahead > 1:", "if ahead > 2:"),
    "one report is paid of those reserved": ("spent + ahead * cost\n", "spent + cost\n"),
    "a round too many is over": ("round_number + ahead - 1\n", "round_number + ahead\n"),
    "a round too few is over": ("round_number + ahead - 1\n", "round_number + ahead - 2\n"),
    "reserved with the question": (
        '_set(_NO_QUESTION, b"")\n                self',
        '_set(question, b"")\n                self',
    ),
    "reserved, but called answered": (
        "self.state = RESERVED\n                self",
        "self.state = ANSWERED\n                self",
    ),
    "reserved with the report": (
        'b"")\n                self._write',
        "report)\n                self._write",
    ),
    "all that is reserved counts as spent": ("self.spent = spent + cost\n", "self.spent += cost\n"),
    "nothing is spent": ("self.spent = spent + cost\n", "self.spent = spent\n"),
    "another report of those paid ahead is kept in the file": (
        "        if not covered:\n            self._write(path)",
        "        self._write(path)",
    ),
    "nothing is written": ("        if not covered:\n            self._write(path)", "        pass"),
    "the question is not kept": (
        "_QUESTION, question, self.state",
        "_QUESTION, _NO_QUESTION, self.state",
    ),
    "the report is not kept": (
        "_HEADER, report if MICROPYTHON else bytes(report))",
        "_HEADER, bytes(len(report)))",
    ),
    "a short report leaves the length of a longer one": (
        "self.state, len(report))",
        "self.state, max(len(report), 20))",
    ),
    "the check leaves out the report": (
        "crc32(self._checked)",
        "crc32(self._checked[:52])",
    ),
}


def test_the_ledger_itself_passes(tmp_path: Path) -> None:
    ledger_vectors.check(mutant(), str(tmp_path / "ledger"), CASES)


@pytest.mark.parametrize("what", MUTATIONS)
def test_the_vectors_catch(what: str, tmp_path: Path) -> None:
    assert caught(mutant(*MUTATIONS[what]), tmp_path / "ledger")


def caught(wrong: types.ModuleType, path: Path) -> bool:
    try:
        ledger_vectors.check(wrong, str(path), CASES)
    except Exception:  # a wrong ledger answers wrongly, or dies
        return True
    return False


def mutant(right: str = "", wrong: str = "") -> types.ModuleType:
    """tern.ledger with one text in the place of another, which is there once."""
    assert not right or SOURCE.count(right) == 1, right
    module = types.ModuleType("mutant")
    exec(compile(SOURCE.replace(right, wrong) if right else SOURCE, "mutant", "exec"), module.__dict__)
    return module
