"""Runs and stores that need gateways say so where the package is missing; others do not need it."""

import numpy as np
import pytest

from terngateway.extension import GATEWAYS
from terngateway.tables import GatewayTables
from ternhost.errors import StorageError, UsageError
from ternhost.registry import Registry
from ternhost.run import plugins
from ternhost.store import schema
from ternhost.store.reader import Reader
from ternhost.store.store import Store


@pytest.fixture
def with_gateways(tmp_path):
    """The path of a store that gateways have used."""
    with Store(tmp_path / "used.sqlite") as store:
        GatewayTables(store).gateway_seen("north", np.arange(1, 4), 0.0, {})
    return tmp_path / "used.sqlite"


@pytest.fixture
def not_installed(monkeypatch):
    """No extension is installed."""
    nobody = Registry("extension", "tern.no-such-group", {})
    monkeypatch.setattr(schema, "EXTENSIONS", nobody)
    monkeypatch.setattr(plugins, "EXTENSIONS", nobody)


@pytest.mark.usefixtures("not_installed")
@pytest.mark.parametrize("opened", [Store, lambda path: Reader(path).snapshot()])
def test_a_store_that_gateways_have_used_needs_the_package(with_gateways, opened):
    with pytest.raises(StorageError, match="has data of terngateway, which is not installed"):
        opened(with_gateways)


def test_a_store_that_no_gateway_has_used_does_not(tmp_path, request):
    with Store(tmp_path / "plain.sqlite") as store:
        assert not store.has_tables_of(GATEWAYS)
    request.getfixturevalue("not_installed")
    with Store(tmp_path / "plain.sqlite"):
        pass


@pytest.mark.usefixtures("not_installed")
def test_a_run_with_options_of_gateways_needs_the_package():
    asked = {
        "algorithm": "fedsgd",
        "fleet": "simulated:9",
        "learning": {},
        "extensions": {"gateways": {}},
    }
    with pytest.raises(UsageError, match="needs the extension 'gateways'"):
        plugins.require_all("mine", asked)


def test_tables_of_another_version_are_refused(with_gateways):
    with Store(with_gateways) as store:
        store.write("UPDATE extension SET version = version + 1")
    with pytest.raises(StorageError, match="a newer version of terngateway"):
        Store(with_gateways)
