"""Refusals of devices: warnings, their meaning, and remedies."""

import json
from collections import Counter
from pathlib import Path

from tern import wire
from ternhost.count.rounds import RoundResult
from ternhost.errors import RefusedError
from ternhost.reach.driver import Warn


class Refusals:
    """Warns of the refusals in a run: of each reason once."""

    def __init__(self, warn: Warn) -> None:
        self._warn = warn
        self._warned: set[int] = set()

    def check(self, result: RoundResult, forged: int) -> None:
        """Warn of refusals beside reports.

        Raises AllRefused for refusals alone, RefusedError for forgeries alone.
        """
        if result.refusals and not result.reports:
            raise AllRefused(result)
        if result.refusals:
            if wire.ERR_OLD_ROUND not in self._warned and (later := later_rounds(result)):
                self._warned.add(wire.ERR_OLD_ROUND)
                words, hint = later
                self._warn(f"round {result.number}: {words}" + (f"; {hint}" if hint else ""))
            code, words, _ = explain(result)
            if code not in self._warned:  # once in a run: most devices will refuse again
                self._warned.add(code)
                self._warn(f"round {result.number}: {words}")
        elif not result.reports and forged:
            text = (
                f"no device reported in round {result.number}: they have other keys than this store"
            )
            hint = "use their store, or give each its key in this one: tern provision BOARD --store FILE --device ID"
            raise RefusedError(text, hint=hint)


def later_rounds(result: RoundResult) -> tuple[str, str | None] | None:
    """A warning of devices that claim unasked rounds, and a remedy, with a number only where most
    of them agree.
    """
    claimed = sorted(
        refusal.detail
        for refusal in result.refusals.values()
        if refusal.code == wire.ERR_OLD_ROUND and refusal.detail > result.number
    )
    if not claimed:
        return None
    number = claimed[len(claimed) // 2]
    words = (
        f"{len(claimed)} of {result.asked} devices say that they have seen round {number} already, "
        "which this store has not asked; they are not believed"
    )
    if 2 * len(claimed) <= result.asked or number - result.number > wire.CLIENT_AHEAD:
        return words, None
    return words, f"if the store was restored from a copy, go on with --after-round {number}"


class AllRefused(RefusedError):
    """All devices that answered have refused: gives the most frequent reason and a remedy."""

    def __init__(self, result: RoundResult) -> None:
        _, words, hint = explain(result)
        super().__init__(words, hint=hint)
        self.result = result


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


def nobody_will_report(result: RoundResult) -> bool:
    """Whether every device that was asked has refused for a reason that will not change, so that
    nobody has paid.

    A device that was silent may have paid. One without records may get some, but another dimension
    stays.
    """
    if result.reports or len(result.refusals) < result.asked:
        return False
    return all(
        refusal.code in _FINAL or (refusal.code == wire.ERR_DATA and refusal.detail > 0)
        for refusal in result.refusals.values()
    )


def explain(result: RoundResult) -> tuple[int, str, str | None]:
    """The most frequent code among the refusals of a round, its meaning, and a remedy."""
    code, count = Counter(refusal.code for refusal in result.refusals.values()).most_common(1)[0]
    one = next(refusal for refusal in result.refusals.values() if refusal.code == code)
    if code == wire.ERR_OLD_ROUND and (later := later_rounds(result)):
        return code, *later
    words = {"amount": one.detail / 1e6, "detail": one.detail, "number": result.number}
    what, hint = REMEDIES.get(code, (wire.error_name(code), None))
    if (code, one.detail) == (wire.ERR_LEDGER, wire.OLD_LEDGER):
        what, hint = _TEXTS["OLD_LEDGER"]
    told = f"{count} of {result.asked} devices refuse: {what.format(**words)}"
    return code, told, hint and hint.format(**words)


_TEXTS = json.loads(
    Path(__file__).with_suffix(".json").read_text()
)  # by names of tern.wire: (words, remedy)
REMEDIES: dict[int, tuple[str, str]] = {
    getattr(wire, name): (*texts,) for name, texts in _TEXTS.items() if name.startswith("ERR_")
}
"""By error code, what a refusal means, with fields to fill in, and its remedy."""
WHEN_SPENT = REMEDIES[wire.ERR_BUDGET][1]
"""What to do when a budget is spent."""
