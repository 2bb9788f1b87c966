"""Explains refusals: a device that refuses answers with an error code instead of a report."""

import json
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from tern import wire
from ternhost.count.rounds import Refusal, RoundResult
from ternhost.errors import RefusedError
from ternhost.privacy.base import MICRO
from ternhost.reach.driver import Warn

# What a refusal means and what to do, by the name of its error code in tern.wire.
_TEXTS = json.loads(Path(__file__).with_suffix(".json").read_text())


def _read_remedies() -> dict[int, tuple[str, str]]:
    """Return for each error code what the refusal means, and what to do.

    The texts are stored by the names of the codes in tern.wire.
    """
    remedies = {}
    for name, (meaning, remedy) in _TEXTS.items():
        if name.startswith("ERR_"):  # other texts are for special cases of a code
            code = getattr(wire, name)
            remedies[code] = (meaning, remedy)
    return remedies


REMEDIES = _read_remedies()
"""For each error code what a refusal means, with fields to fill in, and what to do."""
_MEANING_WHEN_SPENT, WHEN_SPENT = REMEDIES[wire.ERR_BUDGET]
"""WHEN_SPENT: what to do when the privacy budget of a device is spent."""

# Error codes that a device answers again whenever it is asked the same. A device that answers one
# of them has not drawn a report, and so has spent no budget.
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
    """The most frequent reason for which devices refused in a round."""

    code: int  # the error code of tern.wire
    words: str  # how many devices refuse, and why
    hint: str | None  # what to do


class Refusals:
    """Warns of the refusals in a run, once for each reason."""

    def __init__(self, warn: Warn) -> None:
        """warn: is called with each warning."""
        self._warn = warn
        self._warned: set[int] = set()  # the error codes of the warnings so far

    def check(self, result: RoundResult, forged: int) -> None:
        """Warn of the refusals of a round that has ended, or raise an error if nobody reported.

        forged: how many frames came that were sealed with another key than the host knows for the
        device. Raises AllRefused if there were refusals and no report, and RefusedError if nothing
        came but such frames.
        """
        if result.refusals and not result.reports:
            raise AllRefused(result)
        if result.refusals:
            self._warn_once(result)
            return
        if forged and not result.reports:
            raise RefusedError(
                f"no device reported in round {result.number}: they have other keys than this store",
                hint="use their store, or give each its key in this one: tern board provision BOARD "
                "--store FILE --device ID",
            )

    def _warn_once(self, result: RoundResult) -> None:
        """Warn of the most frequent refusal of a round, unless there was such a warning before.

        Most devices will refuse again in the next rounds, so that one warning is enough. Devices
        that claim to have seen a later round get a warning of their own.
        """
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
    """The error for a round in which all devices that answered have refused to report."""

    def __init__(self, result: RoundResult) -> None:
        """Give the most frequent reason of the round's refusals, and what to do about it."""
        explanation = explain(result)
        super().__init__(explanation.words, hint=explanation.hint)
        self.result = result


def describe_later_rounds(result: RoundResult) -> tuple[str, str | None] | None:
    """Return a warning if devices claim to have seen a later round than this store has begun.

    The result is the warning and what to do about it, or None if no device claims that. What to do
    is None, too, unless most of the devices agree, since a single one may lie.
    """
    claimed_rounds = []
    for refusal in result.refusals.values():
        if refusal.code == wire.ERR_OLD_ROUND and refusal.detail > result.number:
            claimed_rounds.append(refusal.detail)
    if not claimed_rounds:
        return None
    count = len(claimed_rounds)
    median = sorted(claimed_rounds)[count // 2]  # a liar cannot move it far
    words = (
        f"{count} of {result.asked} devices say that they have seen round {median} already, "
        "which this store has not asked; they are not believed"
    )
    most_agree = 2 * count > result.asked
    # --after-round cannot skip more rounds than CLIENT_AHEAD, since devices would refuse that.
    is_possible = median - result.number <= wire.CLIENT_AHEAD
    if not most_agree or not is_possible:
        return words, None
    return words, f"if the store was restored from a copy, go on with --after-round {median}"


def nobody_will_report(result: RoundResult) -> bool:
    """Return whether every device of a round has refused for a reason that will not change.

    Then no device has spent any of its privacy budget in the round, and the run can be given up.
    """
    some_were_silent = len(result.refusals) < result.asked  # and may have spent budget
    if result.reports or some_were_silent:
        return False
    return all(_is_final(refusal) for refusal in result.refusals.values())


def _is_final(refusal: Refusal) -> bool:
    """Return whether a device will refuse for the same reason in every round of the run."""
    # A device without records may get some, but another dimension stays.
    has_other_dimension = refusal.code == wire.ERR_DATA and refusal.detail > 0
    return refusal.code in _FINAL or has_other_dimension


def explain(result: RoundResult) -> Explanation:
    """Explain the most frequent refusal of a round, with the details of the first such device.

    The round must have a refusal.
    """
    refusals = list(result.refusals.values())
    count_by_code = Counter(refusal.code for refusal in refusals)
    code, count = count_by_code.most_common(1)[0]
    example = next(refusal for refusal in refusals if refusal.code == code)
    if code == wire.ERR_OLD_ROUND:
        warning = describe_later_rounds(result)
        if warning is not None:
            words, hint = warning
            return Explanation(code, words, hint)

    hint = None
    meaning = wire.error_name(code)  # of a code for which there is no text
    if code in REMEDIES:
        meaning, hint = REMEDIES[code]
    if code == wire.ERR_LEDGER and example.detail == wire.OLD_LEDGER:
        meaning, hint = _TEXTS["OLD_LEDGER"]

    # What `detail` is depends on the code; an amount of privacy loss is in millionths.
    fields = {
        "amount": example.detail / MICRO,
        "detail": example.detail,
        "number": result.number,
    }
    words = f"{count} of {result.asked} devices refuse: {meaning.format(**fields)}"
    if hint:
        hint = hint.format(**fields)
    return Explanation(code, words, hint)
