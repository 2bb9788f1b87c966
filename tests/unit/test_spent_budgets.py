"""No message asks people to break the promise that a budget is: to erase a board and provision it
again, to go on.
"""

import json
import re
from pathlib import Path

import pytest

from ternhost.reach import refusals
from ternhost.store.snapshot import RunView, Snapshot
from ternhost.watch import words

ROOT = Path(__file__).parents[2]
REMEDIES = json.loads((ROOT / "host/ternhost/reach/refusals.json").read_text())
ERASING = re.compile(r"board flash --erase|erase the board|new id|new ID|tern board provision")


def test_no_remedy_for_a_spent_budget_erases_a_board():
    """A device that has spent its budget refuses. Erasing it would give it a new budget, and break
    the promise to the people whose data it holds: neither the errors nor the live view advise that.
    """
    now = Snapshot(
        "s",
        run=RunView("a", 0.0, "running", "fedsgd", "port:a0"),
        history=({"round": 1, "asked": 2, "reports": 0, "reasons": {"budget": 2}},),
    )
    shown = words.refusing(now)  # of a round that both devices refuse for their budget
    assert "keep this promise by refusing" in shown
    for text in (refusals.WHEN_SPENT, shown):
        assert not ERASING.search(text), text


@pytest.mark.parametrize("name", ["ERR_LEDGER", "OLD_LEDGER"])
def test_a_lost_account_is_no_reason_for_a_second_budget(name):
    _, remedy = REMEDIES[name]
    assert (
        "count its whole budget as spent" in remedy or "count their whole budget as spent" in remedy
    )
    assert "for the people whose data it holds both add up" in remedy


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "CHANGELOG.md",
        *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
    ],
)
def test_a_page_that_speaks_of_a_new_id_says_what_it_means_for_people(page):
    for paragraph in re.split(r"\n\n|\n(?=\d+\. |- |\| )", (ROOT / page).read_text()):
        if re.search(r"\bnew id\b", paragraph):
            assert re.search(r"people|owner", paragraph), paragraph
