"""The counter of a board's chip, to which its ledger may be bound (ledger.md)."""

import ast
from typing import NamedTuple

from tern.storage import MAX_AHEAD
from ternhost.errors import UsageError
from ternhost.guides import guide
from ternhost.privacy.accounting import Policy
from ternhost.text import counted
from terntools.boards.repl import Repl

# Prints the state of the counter, () if the chip has none, None if the board has no module for it.
_LOOK = """
try:
    from tern.boards.this import this_board
    from tern.counter import count
    fuses = this_board().fuses()
    try:
        print(count(fuses) if fuses else ())
    except ValueError:
        print(())
except ImportError:
    print(None)
"""


class Fuses(NamedTuple):
    """The state of a chip's counter, which counts by burning fuses.

    Each step burns a fuse when it begins and another one when it is done, so that a power cut in
    between shows.
    """

    begun: int  # the number of the last step that was begun
    done: int  # the number of the last step that was done
    total: int  # the number of steps that the chip has


def look(repl: Repl) -> Fuses:
    """Read the state of the board's counter, which counts payments by burning fuses of the chip.

    Raises UsageError if the chip has no counter, or if the board lacks the library's module for it.
    """
    # The board prints a tuple of three numbers; () for no counter; None for no module.
    state: tuple[int, int, int] | tuple[()] | None = ast.literal_eval(repl.run(_LOOK).strip())
    if state is None:
        hint = f"install it: tern board deploy {repl.name} --module counter"
        raise UsageError(f"the board on {repl.name} lacks the module for its counter", hint)
    if not state:
        raise UsageError(
            f"the board on {repl.name} has no counter: its chip has no fuses for one, or they are "
            "protected or in use",
            hint=f"leave out --counter; {guide('locks.md')} lists the chips",
        )
    return Fuses(*state)


def plan(repl: Repl, policy: Policy, reserve: int) -> tuple[int, int]:
    """Return the step of the counter to which a new ledger is bound, and how many steps are left.

    The ledger is the file in which a device counts the privacy budget that it has spent. Each
    payment makes a step of the counter, which burns fuses, so that an old copy of the ledger can be
    told from the newest one.

    policy: the device's budget, and the largest cost of a report. reserve: how many reports the
    device pays for in one step. Raises UsageError if there are too few steps to spend the whole
    budget.
    """
    fuses = look(repl)
    steps_left = max(0, fuses.total - fuses.begun - 1)  # the new ledger takes one step itself
    # The fewest reports that spend the budget: each costs the most that it may.
    report_count = policy.budget // policy.largest
    if steps_left * reserve < report_count:
        text = (
            f"the counter on {repl.name} has {counted(steps_left, 'step')} left, which pay for "
            f"{steps_left * reserve} reports with --reserve {reserve}, and the budget is for {report_count} "
            "or more"
        )
        raise UsageError(text, hint=_remedy(steps_left, report_count))
    return fuses.begun + 1, steps_left


def _remedy(left: int, reports: int) -> str:
    """Return a hint for the user: how `left` steps can pay for that many reports."""
    if left:
        reports_per_step = -(-reports // left)  # rounds up
        if reports_per_step <= MAX_AHEAD:
            return f"--reserve {reports_per_step}"
    return "name a smaller --budget, or take another chip"
