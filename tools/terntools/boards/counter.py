"""The counter of a board's chip, to which its ledger may be bound (ledger.md)."""

import ast

from tern.storage import MAX_AHEAD
from ternhost.errors import UsageError
from ternhost.privacy.accounting import Policy
from ternhost.text import counted
from terntools.boards.repl import Repl

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


def look(repl: Repl) -> tuple[int, int, int]:
    """The last step begun, the last one done, and the number of steps.

    Raises UsageError where there are none.
    """
    found: tuple[int, int, int] | None = ast.literal_eval(repl.run(_LOOK).strip())
    if found is None:
        hint = f"tern deploy {repl.name} --with counter"
        raise UsageError(f"the board on {repl.name} lacks the module for its counter", hint)
    if not found:
        raise UsageError(
            f"the board on {repl.name} has no counter: its chip has no fuses for one, or they are protected or in use",
            hint="leave out --counter; firmware/BOARDS.md lists the chips (A counter against old copies)",
        )
    return found


def plan(repl: Repl, policy: Policy, reserve: int) -> tuple[int, int]:
    """The step of a new ledger, and how many steps are left then.

    Raises UsageError if they cannot pay the budget.
    """
    begun, _, total = look(repl)
    left = max(0, total - begun - 1)
    wanted = policy.budget // policy.largest
    if left * reserve < wanted:
        enough = -(-wanted // left) if left else 0
        text = f"the counter on {repl.name} has {counted(left, 'step')} left, which pay for {left * reserve} "
        text += f"reports with --reserve {reserve}, and the budget is for {wanted} or more"
        others = "name a smaller --budget, or take another chip"
        raise UsageError(text, f"--reserve {enough}" if 0 < enough <= MAX_AHEAD else others)
    return begun + 1, left
