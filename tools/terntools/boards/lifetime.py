"""The budget of a device is for life: its ledger on the board, and what a store knows of earlier lives.

A ledger is never overwritten. A device that lost its ledger must not get a second budget.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from tern import storage
from tern.ledger import IDLE, RHO, Ledger, LedgerError
from ternhost.count.questions import cost_of, decode_body
from ternhost.errors import RefusedError, UsageError
from ternhost.privacy import cards
from ternhost.privacy.accounting import MEASURES
from ternhost.privacy.base import MICRO
from ternhost.privacy.units import covers, protected
from ternhost.store.store import Store
from ternhost.text import counted
from terntools.boards import counter, update_package
from terntools.boards.member import Member
from terntools.boards.repl import Repl

# The key in a store of the budget (millionths) and measure of a device's first ledger.
_FIRST_LEDGER = "ledger of device %d"
# Where a ledger has its budget, its measure and the step of its counter (ledger.md).
_BUDGET_FIELD = slice(4, 8)
_MEASURE_AT = 49
_STEP_FIELD = slice(52, 54)

ANOTHER_DEVICE = (
    "make it another device, only if other people own the board now, or, where it protects single "
    "records, if all of them are gone: another device has a budget of its own, and for the people "
    "whose data both hold the two add up"
)


def first_ledger(store: Store, device: int) -> tuple[int, int] | None:
    """Budget (millionths) and measure of a device's first ledger; None if the store knows of none."""
    known = store.state(_FIRST_LEDGER % device)
    return None if known is None else (known[0], known[1])


def keep_first_ledger(store: Store, device: int, budget: int, measure: int) -> None:
    """Note the budget (millionths) and measure of a device's ledger, if it is the first one."""
    if first_ledger(store, device) is None:
        store.save_state({_FIRST_LEDGER % device: [budget, measure]})


def budget_of(ledger: bytes) -> tuple[int, int]:
    """Budget (millionths) and measure of a new ledger."""
    return int.from_bytes(ledger[_BUDGET_FIELD], "little"), ledger[_MEASURE_AT]


def check_ledger(repl: Repl, member: Member, store: Store) -> None:
    """Check that the ledger on the board can serve this member; the store notes its budget.

    Raises RefusedError for a damaged ledger, an old copy, or one without the wanted counter, and
    UsageError for another measure, another unit, or a larger budget.
    """
    ledger = _read_ledger(repl, member)
    keep_first_ledger(store, member.device, ledger.budget, ledger.measure)
    _require_same_unit(repl, member)


def _read_ledger(repl: Repl, member: Member) -> Any:
    """Read the board's ledger, and check everything but its unit.

    Raises RefusedError and UsageError.
    """
    ledger = Ledger()
    data = repl.read_file("/" + storage.ledger_name(member.device))
    with tempfile.TemporaryDirectory(prefix="tern-provision-") as folder:
        copy = Path(folder, "ledger")
        copy.write_bytes(data)
        try:
            ledger.load(str(copy))
        except LedgerError as error:
            raise ledger_refusal(repl, member, f"has a bad ledger ({error})") from error

    step = int.from_bytes(data[_STEP_FIELD], "little")
    if step and not _is_newest(ledger, step, counter.look(repl)):
        reason = "has an old copy of its ledger, by the counter of its chip"
        raise ledger_refusal(repl, member, reason)
    if member.counter and not step:
        raise ledger_refusal(repl, member, "has a ledger that is not bound to a counter")
    _require_same_budget(member, int(ledger.budget), int(ledger.measure))
    return ledger


def _is_newest(ledger: Any, step: int, fuses: counter.Fuses) -> bool:
    """Return whether the ledger is the newest one, by the counter of its chip (ledger.md).

    step: of the counter, to which the ledger is bound. An old copy is bound to an earlier step.
    """
    if step == fuses.done:
        return True
    if step == fuses.begun > fuses.done:  # power was cut while the step was made
        return True
    # The ledger is written before its first step begins.
    return bool(ledger.state == IDLE and step == fuses.begun + 1)


def _require_same_unit(repl: Repl, member: Member) -> None:
    """Raise UsageError if the board protects another unit, since its ledger counts for that unit."""
    path = "/" + storage.FLEET
    data = repl.read_file(path) if path in repl.directory("/") else b""
    if data[:4] != storage.FLEET_MAGIC:
        return
    unit = int.from_bytes(data[-2:], "little")  # the last field of fleet.bin
    if unit != member.settings.unit:
        raise UsageError(
            f"device {member.device} protects {protected(unit)} for life",
            hint=f"name that --unit; or, on erased flash, {ANOTHER_DEVICE}",
        )


def _require_same_budget(member: Member, budget: int, measure: int) -> None:
    """Raise UsageError for another measure than that of the ledger, or a larger budget.

    budget: of the ledger, in millionths. The device would enforce the smaller of the two budgets,
    while the user believes in the larger.
    """
    if member.policy.measure != measure:
        hint = "leave out --delta and --budget-rho"
        if measure == RHO:
            hint = f"name --budget-rho {_decimal(budget)} or less"
        raise UsageError(
            f"the ledger of device {member.device} counts {MEASURES[measure]} for life", hint=hint
        )
    if member.policy.budget > budget:
        option = "--budget-rho" if measure == RHO else "--budget"
        fixed, wanted = _decimal(budget), _decimal(member.policy.budget)
        raise UsageError(
            f"the budget of device {member.device} was set to {fixed} for life and cannot be "
            f"raised to {wanted}",
            hint=f"name {option} {fixed} or less: it is the promise to the people whose data the "
            "device holds",
        )


def _decimal(millionths: int) -> str:
    """An amount as a decimal number without an exponent."""
    return f"{Decimal(millionths) / MICRO:f}"


def ledger_refusal(repl: Repl, member: Member, what: str) -> RefusedError:
    """The error for a board whose ledger is lost, damaged or old."""
    return RefusedError(
        f"device {member.device} on {repl.name} {what}: nobody knows what it has released",
        hint=f"count its whole budget as spent; or, on erased flash, {ANOTHER_DEVICE}",
    )


@dataclass(frozen=True)
class _EarlierLife:
    """What a store knows of a device whose board has no ledger. Its budget is for all its lives."""

    ledger: tuple[int, int] | None  # the first one: budget (millionths) and measure
    requests: list[Any]  # the questions that it was asked; it may have paid for each
    was_updated: bool  # its program was updated in the field

    @classmethod
    def of(cls, store: Store, device: int) -> _EarlierLife:
        """Collect from the store what is known of a device."""
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
        """What it has spent at most, in millionths of a measure, also where no report arrived."""
        return sum(cost_of(request, measure) for request in self.requests)

    def describe(self, measure: int) -> str:
        """Describe for a message what the store knows of the device.

        measure: of privacy (epsilon or rho), in which the costs of its rounds are given.
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
        """Return whether its costs can be counted in the member's measure and for its unit."""
        for request in self.requests:
            if not covers(cards.unit_of(request.card), member.settings.unit):
                return False
        if self.ledger is None:
            return True
        # A budget in rho has no epsilon.
        return self.ledger[1] != RHO or member.policy.measure == RHO


def spent_before(repl: Repl, member: Member, store: Store) -> tuple[int, str]:
    """Return what a device without a ledger has spent before, and what the user should know of it.

    The amount is in millionths, the largest possible; 0 and "" for a new device. Raises
    RefusedError if the device has lived before and may not go on, and UsageError for options that
    do not fit.
    """
    life = _EarlierLife.of(store, member.device)
    if not life:
        return 0, ""

    measure, budget = member.policy.measure, member.policy.budget
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
        if first_measure == measure or measure != RHO:  # else its questions are counted in rho
            _require_same_budget(member, first_budget, first_measure)

    spent = life.spent(measure)
    if spent >= budget:
        raise RefusedError(f"{life_words}: nothing is left of {budget / MICRO:g}", hint=new_device)
    whose = "its key and the fleet's are" if member.settings.whole_fleet else "its key is"
    note = (
        f"device {member.device} begins again: {MEASURES[measure]} {spent / MICRO:g} of "
        f"{budget / MICRO:g} counts as spent, and {whose} new; "
        "'tern broker config' brings sites and relays its new password"
    )
    return spent, note
