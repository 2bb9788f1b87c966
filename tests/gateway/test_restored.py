"""Stores of gateways and of their host that were restored from a copy."""

import pytest

from terngateway.site_fleet import FILE, SiteFleet, opened
from terngateway.tables import GatewayTables
from ternhost.backup.restore import restore
from ternhost.backup.save import save
from ternhost.count.members import integers
from ternhost.store import restored
from ternhost.store.round_numbers import last_number


def test_a_gateway_that_a_host_has_asked_keeps_the_numbers_of_its_host(store):
    """A gateway that claimed later numbers than its host has used would not be believed."""
    GatewayTables(store).save_question(7, bytes(32), b"question")
    before = last_number(store)
    restored.mark(store, saved=1.0, now=2.0)
    assert last_number(store) == before


def test_a_host_of_gateways_uses_no_number_again(store):
    GatewayTables(store).gateway_seen("north", integers([1]), heard=1.0, here={})
    restored.mark(store, saved=1.0, now=2.0)
    assert last_number(store) == restored.SKIPPED_ROUNDS


@pytest.fixture
def site(tmp_path):
    """The directory of a gateway with simulated clients, which was opened once."""
    runs = SiteFleet(fleet="simulated:20")
    with opened(tmp_path / "north", runs):
        pass
    return tmp_path / "north", runs


def warnings_of(directory, runs):
    warnings = []
    with opened(directory, runs, warnings.append):
        pass
    return warnings


def test_a_gateway_warns_that_a_copy_lacks_what_its_counts_disclosed(site, tmp_path):
    directory, runs = site
    assert not warnings_of(directory, runs)
    save(directory, tmp_path / "north.backup")
    restore(tmp_path / "north.backup", tmp_path / "restored")
    (warning,) = warnings_of(tmp_path / "restored", runs)
    assert "restored from a copy" in warning


def test_the_settings_of_a_gateway_are_in_its_backup(site, tmp_path):
    directory, _runs = site
    save(directory, tmp_path / "north.backup")
    restore(tmp_path / "north.backup", tmp_path / "restored")
    written = (directory / FILE).read_text()
    assert (tmp_path / "restored" / FILE).read_text() == written
