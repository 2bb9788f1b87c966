"""Records belong to devices that the data name: each client of a run is one of them."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from ternhost import datasets
from ternhost.datasets import Selection
from ternhost.datasets.holdings import MOST_RECORDS, Holdings, of_owners
from ternhost.errors import UsageError
from ternhost.learn.base import ALGORITHMS, Population, algorithms_of
from ternhost.learn.choice import choose_algorithm
from ternhost.learn.record_bound import bound_on_records
from ternhost.learn.schedule import Schedule
from ternhost.learn.sums.fedsum import FedSum
from ternhost.options import names_of
from ternhost.planning.existing import Existing
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.run.status import Watcher

BY = Selection(by="home", time="t")
HOMES = {"B3": 30, "A1": 12, "C2": 21}  # records of each, in the order of the table
SCHEMA = """
label = "state"
positive = "warm"
[columns.temperature]
low = 0
high = 50
[columns.humidity]
low = 0
high = 100
[columns.state]
categories = ["cold", "warm"]
"""


def write_table(path, homes):
    """Write a table of homes with so many records each, backwards in time, and its schema."""
    rng = np.random.default_rng(3)
    lines = ["home,t,temperature,humidity,state"]
    for home, count in homes.items():
        for moment in reversed(range(count)):
            temperature = rng.integers(0, 51)
            state = "warm" if temperature > 20 else "cold"
            lines.append(f"{home},{moment},{temperature},{rng.integers(0, 101)},{state}")
    path.write_text("\n".join(lines) + "\n")
    path.with_suffix(".toml").write_text(SCHEMA)
    return str(path)


@pytest.mark.parametrize("row", [",3,20,30,cold", "A1,,20,30,cold"])
def test_a_record_without_a_device_or_a_time_is_left_out(tmp_path, row):
    table = write_table(tmp_path / "my.csv", HOMES)
    with open(table, "a", encoding="utf-8") as file:
        file.write(f"{row}\n")
    data = datasets.load(table, selection=BY)
    assert (data.size, set(data.owner_names)) == (sum(HOMES.values()), set(HOMES))


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path / "my.csv", HOMES)


def begin(name, table, population=None, **options):
    """A learner on the table, whose homes are the devices."""
    algorithm = ALGORITHMS[name]
    named = algorithm.Options(data=table, by="home", time="t", **options)
    return algorithm(named, population or Population())


def held_by_owners(name, data):
    """The positions of what a learner gives to each owner of a data set that has any of it."""
    positions = data.training
    if name == "infer":
        positions = data.test
    return [positions[data.owners[positions] == owner] for owner in range(len(data.owner_names))]


# Holdings


def data_of(owners, names=("a", "b", "c", "d")):
    """Records that are numbered in their only feature, of these owners."""
    features = np.arange(len(owners), dtype=np.int16).reshape(-1, 1)
    return SimpleNamespace(
        size=len(owners),
        owners=np.array(owners),
        owner_names=names,
        records=lambda positions: np.concatenate([features, features], axis=1)[positions],
    )


def test_each_client_holds_the_records_of_an_owner_in_their_order():
    holdings = of_owners(data_of([1, 0, 1, 2, 1]), np.arange(5))
    held = [holdings.all_positions([client]).tolist() for client in range(3)]
    assert held == [[1], [0, 2, 4], [3]]
    assert holdings.names == ("a", "b", "c")


def test_an_owner_whose_records_are_all_held_out_is_no_client():
    holdings = of_owners(data_of([0, 1, 1, 3]), np.array([0, 3]))
    assert holdings.names == ("a", "d")
    assert holdings.counts([0, 1]).tolist() == [1, 1]


def test_records_beyond_the_bound_are_left_out():
    holdings = of_owners(data_of([0, 0, 0, 1, 0]), np.arange(5), most=2)
    assert holdings.order.tolist() == [0, 1, 3]
    assert holdings.per_client == 2


def test_the_first_clients_keep_what_they_hold():
    holdings = of_owners(data_of([0, 0, 1, 2]), np.arange(4)).of_first(2)
    assert (holdings.clients, holdings.names, holdings.order.tolist()) == (2, ("a", "b"), [0, 1, 2])


def test_a_batch_begins_anew_after_the_last_record():
    holdings = of_owners(data_of([0, 1, 1, 1]), np.arange(4))
    batches = holdings.batches([0, 1], np.array([0, 2]), 2)
    assert batches[:, :, 0].tolist() == [[0, 0], [3, 1]]


def test_rows_are_of_clients_with_equally_many_records():
    holdings = of_owners(data_of([0, 1, 1]), np.arange(3))
    assert holdings.rows([1]).shape == (1, 2, 2)
    with pytest.raises(ValueError, match="equally many"):
        holdings.rows([0, 1])


def test_groups_have_clients_with_equally_many_records():
    holdings = of_owners(data_of([0, 1, 1, 2]), np.arange(4))
    assert [group.tolist() for group in holdings.groups([2, 1, 0])] == [[0, 2], [1]]


def test_records_without_owners_are_dealt_in_groups_of_equal_size():
    holdings = Holdings(np.zeros((7, 2), np.int16), np.arange(7), 3)
    assert holdings.clients == 2
    assert holdings.all_positions([1, 2]).tolist() == [3, 4, 5, 0, 1, 2]


# Learners


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_every_learner_gives_each_device_its_own_records(name, table):
    learner = begin(name, table)
    data = learner_data(name, table)
    assert learner.clients == len(HOMES)
    for client, positions in enumerate(held_by_owners(name, data)):
        held = learner.holdings.rows([client])[0]
        assert held.tolist() == data.records(positions).tolist()


def learner_data(name, table):
    """The data set or the table of which a learner gives records to its clients."""
    if ALGORITHMS[name].command == "collect":
        return datasets.own.load(table, BY).attributes()
    share = ALGORITHMS[name].Options().held_out
    return datasets.load(table, selection=Selection(by="home", time="t", held_out=share))


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_fleet_with_more_devices_than_the_data_is_refused(name, table):
    with pytest.raises(UsageError) as refused:
        begin(name, table, Population(clients=4))
    assert "simulated:3" in refused.value.hint


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_a_smaller_fleet_has_the_first_devices_and_says_so(name, table):
    learner = begin(name, table, Population(clients=2))
    assert learner.holdings.names == ("B3", "A1")
    assert any("first 2 of the 3" in note for note in learner.notes)


WITH_BOUND = ["direct", "fedsgd", "fedavg", "fedsum", "means"]


@pytest.mark.parametrize("name", WITH_BOUND)
def test_without_a_bound_it_is_the_largest_number_of_a_device(name, table):
    learner = begin(name, table)
    assert learner.options.records == max(learner.holdings.counts(range(3)))
    assert any("--records" in note for note in learner.notes)


@pytest.mark.parametrize("name", WITH_BOUND)
def test_a_bound_leaves_records_out_and_says_how_many(name, table):
    learner = begin(name, table, records=10)
    data = learner_data(name, table)
    assert learner.holdings.counts(range(3)).tolist() == [10, 10, 10]
    left_out = len(data.training) - 30
    assert any(f"{left_out} records" in note for note in learner.notes)


# Records without owners, dealt to devices


def dealt(name, records, population=None, **options):
    """A learner on a data set whose records tern deals: so many to each device."""
    algorithm = ALGORITHMS[name]
    named = algorithm.Options(data="breast-cancer", records=records, **options)
    return algorithm(named, population or Population())


NO_ROWS = {"direct": {"public": "none"}, "fedsgd": {}}  # so that all records are dealt
ONE_ANSWER_OR_MANY = pytest.mark.parametrize("name", ["direct", "fedsgd"])


@ONE_ANSWER_OR_MANY
def test_each_device_is_dealt_different_records(name):
    learner = dealt(name, 20, Population(clients=7))
    positions = learner.holdings.positions(range(7))
    assert positions.shape == (7, 20)
    assert len(set(positions.ravel().tolist())) == positions.size


@ONE_ANSWER_OR_MANY
def test_a_fleet_is_refused_whose_devices_cannot_all_have_different_records(name):
    with pytest.raises(UsageError) as refused:
        dealt(name, 50, Population(clients=10))
    assert "--records" in refused.value.hint


@ONE_ANSWER_OR_MANY
def test_the_hint_of_a_refused_fleet_is_right(name):
    with pytest.raises(UsageError) as refused:
        dealt(name, 50, Population(clients=10), **NO_ROWS[name])
    available = 342  # records of breast-cancer to train on
    assert f"{available // 50} devices" in refused.value.hint
    assert f"--records {available // 10}" in refused.value.hint


@ONE_ANSWER_OR_MANY
def test_devices_that_tern_makes_are_as_many_as_get_several_records(name):
    learner = dealt(name, 50)
    assert learner.clients == learner.holdings.clients


@ONE_ANSWER_OR_MANY
def test_a_served_simulation_is_refused_that_has_too_few_records(name):
    population = Population(clients=10, devices=10, schedule=Schedule())
    with pytest.raises(UsageError, match="records"):
        dealt(name, 50, population)


@ONE_ANSWER_OR_MANY
def test_clients_with_one_record_each_may_be_more_than_the_records(name):
    assert dealt(name, 1, Population(clients=1000)).clients == 1000


@ONE_ANSWER_OR_MANY
def test_a_learner_knows_the_most_records_of_a_device(name):
    assert dealt(name, 20, Population(clients=2)).records_per_device == 20


@ONE_ANSWER_OR_MANY
def test_a_bound_that_nobody_states_is_one_record(name):
    learner = dealt(name, None, Population(clients=2))
    assert learner.records_per_device == 1


@ONE_ANSWER_OR_MANY
def test_boards_whose_number_of_records_nobody_states_have_no_bound_in_the_run(name):
    on_boards = {"data": "devices:5", "model": "logistic"}
    learner = ALGORITHMS[name](
        ALGORITHMS[name].Options(**on_boards), Population(devices=3, knows_records=False)
    )
    assert (learner.records_per_device, learner.options.records) == (1, None)


def test_the_most_records_of_an_owner_are_those_that_a_device_can_hold():
    owners = data_of(np.zeros(MOST_RECORDS + 5, int), names=("a",))
    assert bound_on_records(owners, np.arange(MOST_RECORDS + 5), None) == MOST_RECORDS


@pytest.mark.parametrize(("unit", "units"), [("record", 30), (7, 5), ("device", 1)])
def test_sums_have_room_for_the_units_of_the_largest_device(unit, units, tmp_path):
    table = write_table(tmp_path / "even.csv", {"a": 30, "b": 30})
    learner = begin("means", table, unit=unit)
    assert learner.options.units_per_device == units


def test_means_refuse_a_unit_by_which_records_cannot_be_counted(table):
    with pytest.raises(UsageError) as refused:
        begin("means", table, unit="device")
    assert "--unit" in refused.value.hint


def test_devices_that_the_data_give_several_records_are_asked_once_each(table):
    named = {"data": table, "by": "home"}
    chosen = choose_algorithm(named, algorithms_of("train"), names_of(RunOptions))
    assert chosen.algorithm == "direct"


def test_made_boards_have_a_device_for_each_owner(tmp_path):
    homes = {f"home {number}": 5 for number in range(1010)}
    learner = begin("fedsgd", write_table(tmp_path / "many.csv", homes), Population(most=1000))
    assert learner.clients == 1010


# Plans


def test_a_plan_for_the_devices_that_the_data_name_gives_them_their_records(table):
    options = FedSum.Options(data=table, by="home", time="t")
    assert Existing(None, options).learner(seed=1).holdings.names == tuple(HOMES)


def test_a_plan_for_another_number_of_devices_deals_records_at_random(table):
    Path(table).with_suffix(".toml").write_text('device = "home"' + SCHEMA)
    options = FedSum.Options(data=table, records=4)
    holdings = Existing(40, options).learner(seed=1).holdings
    assert (holdings.names, holdings.clients) == ((), 40)


# Runs


@pytest.mark.usefixtures("here")
def test_a_run_keeps_the_bound_that_the_data_had_when_it_began(table):
    options = FedSum.Options(data=table, by="home", unit=7)
    with Run.begin(RunOptions("fedsum", options, "simulated:3")) as run:
        bound = max(run.algorithm.holdings.counts(range(3)))
        assert run.options.learning.records == bound


@pytest.mark.usefixtures("here")
def test_notes_are_shown_before_the_first_round(table):
    notes = []
    options = ALGORITHMS["fedavg"].Options(data=table, by="home", rounds=1, share=1.0)
    options = RunOptions("fedavg", options, "simulated:2")
    with Run.begin(options, watcher=Watcher(note=notes.append)) as run:
        run.run()
        assert notes[: len(run.algorithm.notes)] == [*run.algorithm.notes]
