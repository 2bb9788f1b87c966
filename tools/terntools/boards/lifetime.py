"""The privacy budget of a device is for life, whatever happens to its board.

The ledger on the board counts what the device has spent. It is never overwritten. A device that
lost its ledger must not get a second budget: what it has spent before is estimated from the store.
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tern import storage
from tern.ledger import IDLE, RHO, Ledger, LedgerError
from ternhost.count.members import integers
from ternhost.count.questions import cost_of, decode_body
from ternhost.errors import RefusedError, UsageError
from ternhost.privacy import cards, sums
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import covers, protected
from ternhost.run.costs import disclosures_of_devices
from ternhost.store.restored import last_restore
from ternhost.store.store import Store
from ternhost.text import counted
from terntools.boards import counter, update_package
from terntools.boards.devices import DELTA
from terntools.boards.member import Member
from terntools.boards.repl import Repl

# The key in a store of the budget (millionths) and measure of a device's first ledger. A measure is
# the kind of privacy loss that a ledger counts, a number: epsilon, or rho of zCDP.
_FIRST_LEDGER = "ledger of device %d"
# Where the bytes of a ledger have its budget, its measure and the step of its counter (ledger.md).
_BUDGET_FIELD = slice(4, 8)
_MEASURE_AT = 49
_STEP_FIELD = slice(52, 54)

ANOTHER_DEVICE = (
    "make it another device, only if other people own the board now, or, where it protects single "
    "records, if all of them are gone: another device has a budget of its own, and for the people "
    "whose data both hold the two add up"
)


def first_ledger(store: Store, device: int) -> tuple[int, int] | None:
    """Return the budget (in millionths) and the measure of a device's first ledger.

    The result is None if the store knows of no ledger.
    """
    stored = store.state(_FIRST_LEDGER % device)
    if stored is None:
        return None
    budget, measure = stored
    return budget, measure


def keep_first_ledger(store: Store, device: int, budget: int, measure: int) -> None:
    """Store the budget (in millionths) and the measure of a device's ledger, if it is the first."""
    if first_ledger(store, device) is None:
        store.save_state({_FIRST_LEDGER % device: [budget, measure]})


def budget_of(ledger: bytes) -> tuple[int, int]:
    """Return the budget (in millionths) and the measure of a new ledger, given its bytes."""
    return int.from_bytes(ledger[_BUDGET_FIELD], "little"), ledger[_MEASURE_AT]


def check_ledger(repl: Repl, member: Member, store: Store) -> None:
    """Check that the device can go on with the ledger on its board, and store the ledger's budget.

    member: the wanted state of the board. Raises RefusedError for a ledger that is damaged, an old
    copy, or not bound to a counter although it should be, and UsageError if the user asks for
    another measure, another unit of privacy, or a larger budget than the ledger has.
    """
    ledger = _read_ledger(repl, member)
    keep_first_ledger(store, member.device, ledger.budget, ledger.measure)
    _require_same_unit(repl, member)


def _read_ledger(repl: Repl, member: Member) -> Any:
    """Read the ledger from the board, and check everything but its unit of privacy.

    Raises RefusedError and UsageError, as `check_ledger` does.
    """
    ledger = Ledger()
    data = repl.files.read("/" + storage.ledger_name(member.device))
    with tempfile.TemporaryDirectory(prefix="tern-provision-") as folder:
        copy = Path(folder, "ledger")
        copy.write_bytes(data)
        try:
            ledger.load(str(copy))
        except LedgerError as error:
            raise ledger_refusal(repl, member, f"has a bad ledger ({error})") from error

    step = int.from_bytes(data[_STEP_FIELD], "little")  # 0: the ledger is not bound to a counter
    if step and not _is_newest(ledger, step, counter.look(repl)):
        reason = "has an old copy of its ledger, by the counter of its chip"
        raise ledger_refusal(repl, member, reason)
    if member.counter and not step:
        raise ledger_refusal(repl, member, "has a ledger that is not bound to a counter")
    _require_same_budget(member, int(ledger.budget), int(ledger.measure))
    return ledger


def _is_newest(ledger: Any, step: int, fuses: counter.Fuses) -> bool:
    """Return whether a ledger is the newest one and no old copy, by the counter of its chip.

    Each payment makes a step of the counter, by burning fuses, and binds the ledger to the new step
    (ledger.md). step: the step to which this ledger is bound. fuses: the last step that was begun
    and the last one that was completed.
    """
    if step == fuses.done:
        return True
    was_cut_off = fuses.begun > fuses.done  # power was cut while the last step was made
    if was_cut_off and step == fuses.begun:
        return True
    # A new ledger is written before its first step begins.
    is_new = ledger.state == IDLE and step == fuses.begun + 1
    return bool(is_new)


def _require_same_unit(repl: Repl, member: Member) -> None:
    """Raise UsageError if the user asks for another unit of privacy than the board protects.

    The unit is the whole device or a number of records. What the ledger has counted holds for its
    unit only.
    """
    path = "/" + storage.FLEET
    data = b""
    if path in repl.files.sizes("/"):
        data = repl.files.read(path)
    if data[:4] != storage.FLEET_MAGIC:
        return
    unit = int.from_bytes(data[-2:], "little")  # the last field of fleet.bin
    if unit != member.settings.unit:
        raise UsageError(
            f"device {member.device} protects {protected(unit)} for life",
            hint=f"name that --unit; or, on erased flash, {ANOTHER_DEVICE}",
        )


def _require_same_budget(member: Member, budget: int, measure: int) -> None:
    """Raise UsageError if the user asks for another measure than the ledger's, or a larger budget.

    budget, measure: of the ledger, the budget in millionths. The device would enforce the smaller
    one of the two budgets, while the user believes in the larger one.
    """
    if member.policy.measure != measure:
        hint = "leave out --delta"
        if measure == RHO:
            hint = f"name {_options_of_rho(budget)} or less"
        raise UsageError(
            f"the ledger of device {member.device} counts {MEASURES[measure]} for life", hint=hint
        )
    if member.policy.budget > budget:
        options = f"--budget {_decimal(budget)}"
        if measure == RHO:
            options = _options_of_rho(budget)
        raise UsageError(
            f"the budget of device {member.device} was set to {MEASURES[measure]} "
            f"{_decimal(budget)} for life and cannot be raised to {_decimal(member.policy.budget)}",
            hint=f"name {options} or less: it is the promise to the people whose data the device "
            "holds",
        )


def _options_of_rho(budget: int) -> str:
    """Return the options for the largest budget, to a millionth, that is at most this rho.

    budget: rho in millionths.
    """
    epsilon = math.ceil(sums.epsilon_of(budget, DELTA) * MICRO)
    while sums.rho_of(epsilon / MICRO, DELTA) > budget:  # the rounding may have raised it
        epsilon -= 1
    return f"--budget {_decimal(epsilon)} --delta {DELTA:g}"


def _decimal(millionths: int) -> str:
    """Return an amount of millionths as a decimal number without an exponent, such as "0.000001"."""
    return f"{Decimal(millionths) / MICRO:f}"


def ledger_refusal(repl: Repl, member: Member, what: str) -> RefusedError:
    """Return the error for a board whose ledger is lost, damaged or old.

    what: what is wrong, as the rest of a sentence about the device, such as "has lost its ledger".
    """
    return RefusedError(
        f"device {member.device} on {repl.name} {what}: nobody knows what it has released",
        hint=f"count its whole budget as spent; or, on erased flash, {ANOTHER_DEVICE}",
    )


@dataclass(frozen=True)
class _EarlierLife:
    """What a store knows of the past of a device whose board has no ledger (any more).

    The object is false if the device has no past: then it is a new one.
    """

    ledger: tuple[int, int] | None  # the first one: budget (millionths) and measure
    requests: list[Any]  # the rounds that it was asked; it may have paid for each from its budget
    was_updated: bool  # its program was updated in the field

    @classmethod
    def of(cls, store: Store, device: int) -> _EarlierLife:
        """Collect what a store knows of a device."""
        requests = []
        for round_ in store.rounds():
            for cohort in round_.cohorts:
                if device in cohort.devices:
                    requests.append(decode_body(cohort.body))
        was_updated = store.state(update_package.STATE % device) is not None
        return cls(first_ledger(store, device), requests, was_updated)

    def __bool__(self) -> bool:
        return self.ledger is not None or bool(self.requests) or self.was_updated

    def spent(self, measure: int) -> int:
        """Return the most that the device can have spent, in millionths of a measure.

        Each request counts, since the device may have paid for a report that never arrived.
        """
        return sum(cost_of(request, measure) for request in self.requests)

    def describe(self, measure: int) -> str:
        """Describe for a message what the store knows of the device.

        measure: epsilon or rho, in which the cost of its rounds is given.
        """
        facts = []
        if self.ledger is not None:
            budget, ledger_measure = self.ledger
            facts.append(f"a ledger of {MEASURES[ledger_measure]} {budget / MICRO:g}")
        if self.requests:
            rounds = counted(len(self.requests), "round")
            largest_cost = f"{MEASURES[measure]} {self.spent(measure) / MICRO:g}"
            facts.append(f"{rounds} that asked it, for {largest_cost} at most")
        if self.was_updated:
            facts.append("updates of its program")
        return ", ".join(facts)

    def is_comparable(self, member: Member) -> bool:
        """Return whether what it has spent can be counted in the measure and unit of `member`.

        The measure is epsilon, or rho of zero-concentrated differential privacy. The unit is what is
        protected: the device, or a number of records. There are two cases in which it cannot. A
        request may have protected a smaller unit than the member's. Or the first ledger, the file
        with the spent budget, counted rho, and the member counts epsilon: a cost in rho has no
        epsilon.
        """
        for request in self.requests:
            if not covers(cards.unit_of(request.card), member.settings.unit):
                return False
        if self.ledger is None:
            return True
        _, ledger_measure = self.ledger
        return ledger_measure != RHO or member.policy.measure == RHO


def _spent_beyond(store: Store, member: Member, life_words: str) -> int:
    """Return what a device has spent that a restored store does not know, in millionths.

    Its board has said it since the restore; the result is 0 for a store that never was restored.
    Raises RefusedError if it is unknown. life_words: the beginning of the message.
    """
    restored = last_restore(store)
    if restored is None:
        return 0
    for board in store.boards():
        # A board says only what its first device has spent.
        says_it = board.first == member.device and board.measure == member.policy.measure
        if says_it and board.paid is not None:
            known = disclosures_of_devices(store).prices(integers((board.first,)), board.measure)
            return max(0, board.paid - int(known[0]))
    raise RefusedError(
        f"{life_words}. The store was restored from a copy, and the board did not connect since: "
        "what it has spent after the copy was made is unknown",
        hint=f"{ANOTHER_DEVICE} (--device with an id that no board has had)",
    )


def spent_before(repl: Repl, member: Member, store: Store) -> tuple[int, str]:
    """Return what a device without a ledger has spent before, and a sentence on that for the user.

    The amount is the largest possible one, in millionths. For a new device, the results are 0 and
    "". A device that the store knows goes on only if the user has named --again. Raises RefusedError
    if the device may not go on, and UsageError for options that do not fit.
    """
    life = _EarlierLife.of(store, member.device)
    if not life:
        return 0, ""

    measure = member.policy.measure
    budget = member.policy.budget
    life_words = (
        f"device {member.device} has lived before, and the board on {repl.name} has no ledger of "
        f"it; the store knows of {life.describe(measure)}"
    )
    new_device = f"{ANOTHER_DEVICE} (--device with an id that no board has had)"
    if not member.again:
        go_on = "go on with --again: it gets a new key, and what it may have spent is taken off "
        raise RefusedError(life_words, hint=f"{go_on}its budget; or {new_device}")
    if member.counter:
        text = "--again makes a ledger with what was spent, which no counter can bind"
        raise UsageError(text, hint=new_device)
    if not life.is_comparable(member):
        text = f"{life_words}: they have no epsilon, or protected a smaller unit"
        raise RefusedError(text, hint=new_device)
    if life.ledger is not None:
        first_budget, first_measure = life.ledger
        # A device that counted epsilon may count rho from now on, since each request has a cost in
        # rho as well.
        changes_to_rho = measure == RHO and first_measure != RHO
        if not changes_to_rho:
            _require_same_budget(member, first_budget, first_measure)

    spent = life.spent(measure) + _spent_beyond(store, member, life_words)
    if spent >= budget:
        raise RefusedError(f"{life_words}: nothing is left of {budget / MICRO:g}", hint=new_device)
    whose = "its key is"
    if member.settings.whole_fleet:
        whose = "its key and the fleet's are"
    note = (
        f"device {member.device} begins again: {MEASURES[measure]} {spent / MICRO:g} of "
        f"{budget / MICRO:g} counts as spent, and {whose} new; "
        "'tern broker config' brings sites and relays its new password"
    )
    return spent, note
