"""What a privacy statement says about gateways, and what stands behind it."""

from pathlib import Path

import numpy as np
import pytest

from terngateway.statement import EVIDENCE, part
from terngateway.tables import GatewayTables
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.guarantee import Guarantee, Span
from ternhost.statement import gather, page
from ternhost.statement.evidence import find
from ternhost.statement.facts import Facts, Kind
from ternhost.store.store import Store

ROOT = Path(__file__).parents[2]
NORTH = {"epsilon": 1.17, "delta": 1e-6, "honest": 0.9, "bound": None}
SOUTH = {**NORTH, "epsilon": None}  # its counts tell as much as single reports
RUN = Guarantee.of(Span.RUN, {ReportKind(10**6): 1}, 1e-6)

pytestmark = pytest.mark.usefixtures("here")


def statement(sites, honest=0.9):
    """The page about a run over gateways, as Markdown."""
    facts = Facts(Kind.RUN, "mine", 0.0, 0, 1e-6, promised=[RUN], fleet_kind="gateways")
    facts = Facts(**{**vars(facts), "parts": [part(sites, honest)]})
    return page.markdown(facts).replace("\\", "")


def test_the_owner_of_the_server_is_told_apart_from_the_gateway():
    text = statement({"north": NORTH})
    assert "The gateway of a site sees each report of its devices." in text
    assert "the owner of the server, who sees the counts of north alone" in text
    assert "The host sees each report" not in text


def test_a_site_whose_counts_hide_nothing_is_named():
    assert "The counts of south tell the owner of the server as much" in statement({"south": SOUTH})


def test_the_guarantees_of_sites_are_in_the_json():
    facts = Facts(Kind.RUN, "mine", 0.0, 0, 1e-6, parts=[part({"north": NORTH}, 0.9)])
    (guarantee,) = page.as_json(facts)["guarantees"]
    assert guarantee["site"] == "north"


@pytest.mark.parametrize("key", EVIDENCE)
def test_the_evidence_is_in_the_repository(key):
    assert find(key) is EVIDENCE[key]
    for source in EVIDENCE[key].sources:
        assert (ROOT / source.partition("#")[0]).is_file()
    for test in EVIDENCE[key].tests:
        assert (ROOT / test.partition("::")[0]).is_file()


# Stores of a host


def store_with(**here_by_name):
    """A store whose gateways have said these fields of a HERE."""
    with Store("keys.sqlite") as store:
        for name, here in here_by_name.items():
            GatewayTables(store).gateway_seen(name, np.arange(9, 14), 0.0, here)
    return Path("keys.sqlite")


def test_the_budgets_of_a_site_are_about_the_unit_that_its_boards_protect():
    rows = [[1, 60, 311_064, 0, 3], [0, None, 5_000_000, 0, 2]]
    facts = gather.of_store(store_with(north={"budgets": rows}))
    assert facts.budgets == [Guarantee.of_budget(311_064, 1, 60, 1e-6)]
