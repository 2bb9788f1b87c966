"""Refusals of devices: warnings, their meaning, and remedies."""

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tern import wire
from ternhost.count.rounds import Refusal, RoundResult
from ternhost.errors import RefusedError
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import Warn

# By the names of error codes in tern.wire: what the refusal means, and its remedy.
_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text())


def _read_remedies() -> dict[int, tuple[str, str]]:
    """Return the texts of refusals by error code instead of its name."""
    remedies = {}
    for name, (meaning, remedy) in _TEXTS.items():
        if name.startswith("ERR_"):
            code = getattr(wire, name)
            remedies[code] = meaning, remedy
    return remedies


REMEDIES = _read_remedies()
"""By error code, what a refusal means, with fields to fill in, and its remedy."""
WHEN_SPENT = REMEDIES[wire.ERR_BUDGET][1]
"""What to do when a budget is spent."""

# Reasons that do not change while a run asks the same: nothing was drawn, and nothing paid.
_FINAL = frozenset(
    {
        wire.ERR_CARD,
        wire.ERR_NOT_CERTIFIED,
        wire.ERR_POLICY,
        wire.ERR_BUDGET,
        wire.ERR_MODEL,
        wire.ERR_SLOT,
        wire.ERR_UNIT,
        wire.ERR_MEASURE,
    }
)


class Explanation(NamedTuple):
    """The most frequent error code of a round's refusals, its meaning, and a remedy."""

    code: int
    words: str
    hint: str | None


class Refusals:
    """Warns of the refusals in a run, once for each reason."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._warned: set[int] = set()

    def check(self, result: RoundResult, forged: int) -> None:
        """Look at the refusals of a round that has ended.

        forged: how many frames had another key. Warns of refusals if there were reports, too.
        Raises AllRefused if there were only refusals, and RefusedError if only forgeries came.
        """
        if result.refusals and not result.reports:
            raise AllRefused(result)
        if result.refusals:
            self._warn_once(result)
        elif not result.reports and forged:
            raise RefusedError(
                f"no device reported in round {result.number}: they have other keys than this store",
                hint="use their store, or give each its key in this one: tern provision BOARD "
                "--store FILE --device ID",
            )

    def _warn_once(self, result: RoundResult) -> None:
        """Warn of a reason unless that was done before: most devices will refuse again."""
        if wire.ERR_OLD_ROUND not in self._warned:
            warning = describe_later_rounds(result)
            if warning is not None:
                self._warned.add(wire.ERR_OLD_ROUND)
                words, hint = warning
                if hint:
                    words += f"; {hint}"
                self._warn(f"round {result.number}: {words}")
        explanation = explain(result)
        if explanation.code not in self._warned:
            self._warned.add(explanation.code)
            self._warn(f"round {result.number}: {explanation.words}")


class AllRefused(RefusedError):
    """All devices that answered have refused: gives the most frequent reason and a remedy."""

    def __init__(self, result: RoundResult) -> None:
        explanation = explain(result)
        super().__init__(explanation.words, hint=explanation.hint)
        self.result = result


def describe_later_rounds(result: RoundResult) -> tuple[str, str | None] | None:
    """Write a warning of devices that claim a later round than this store has asked.

    Return the warning and a remedy, or None if no device claims that. There is a remedy only if
    most of the devices agree: a single one may lie.
    """
    claimed_rounds = []
    for refusal in result.refusals.values():
        if refusal.code == wire.ERR_OLD_ROUND and refusal.detail > result.number:
            claimed_rounds.append(refusal.detail)
    if not claimed_rounds:
        return None
    count = len(claimed_rounds)
    median = sorted(claimed_rounds)[count // 2]
    words = (
        f"{count} of {result.asked} devices say that they have seen round {median} already, "
        "which this store has not asked; they are not believed"
    )
    most_agree = 2 * count > result.asked
    if not most_agree or median - result.number > wire.CLIENT_AHEAD:
        return words, None
    return words, f"if the store was restored from a copy, go on with --after-round {median}"


def nobody_will_report(result: RoundResult) -> bool:
    """Return whether every device of a round has refused for a reason that will not change.

    Then nobody has paid for a report. A device that was silent may have paid.
    """
    if result.reports or len(result.refusals) < result.asked:
        return False
    return all(_is_final(refusal) for refusal in result.refusals.values())


def _is_final(refusal: Refusal) -> bool:
    """Return whether a device will refuse for the same reason in every round of the run."""
    # A device without records may get some, but another dimension stays.
    has_other_dimension = refusal.code == wire.ERR_DATA and refusal.detail > 0
    return refusal.code in _FINAL or has_other_dimension


def explain(result: RoundResult) -> Explanation:
    """Explain the most frequent refusal of a round, by the first device that has refused so."""
    refusals = list(result.refusals.values())
    code, count = Counter(refusal.code for refusal in refusals).most_common(1)[0]
    example = next(refusal for refusal in refusals if refusal.code == code)
    if code == wire.ERR_OLD_ROUND:
        warning = describe_later_rounds(result)
        if warning is not None:
            words, hint = warning
            return Explanation(code, words, hint)

    amount = example.detail / MICRO
    fields = {"amount": amount, "detail": example.detail, "number": result.number}
    meaning, hint = REMEDIES.get(code, (wire.error_name(code), None))
    if code == wire.ERR_LEDGER and example.detail == wire.OLD_LEDGER:
        meaning, hint = _TEXTS["OLD_LEDGER"]
    words = f"{count} of {result.asked} devices refuse: {meaning.format(**fields)}"
    if hint:
        hint = hint.format(**fields)
    return Explanation(code, words, hint)
