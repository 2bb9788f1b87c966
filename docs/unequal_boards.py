"""Fleets of boards that do not hold random records: the data sets behind the table of what breaks.

Each function returns a small data set of flights-planned with owners. Its held-out records and its
public rows are those of flights-planned, unless the function says otherwise.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from ternhost import datasets

DATA = "flights-planned"
CARRIER = "carrier_"  # the features that say which airline a flight is of begin so
LEAST_SHARE, LARGEST_SHARE = 0.1, 0.5  # of late flights on a board, where this share differs
FEW = 20  # records of half of the boards, where these numbers differ
LAST_MONTHS = (11, 12)


@cache
def all_flights():
    """Return the data set that all fleets hold records of."""
    return datasets.load(DATA)


def months_of(data):
    """Return the month of each flight, from 1 to 12, by the features that it is a circle of."""
    sine = data.features[:, data.feature_names.index("month_sin")]
    cosine = data.features[:, data.feature_names.index("month_cos")]
    turns = np.arctan2(sine, cosine) / (2 * np.pi)
    return np.rint(12 * turns).astype(int) % 12 + 1


def fleet(boards):
    """Return the data set of boards. boards: the positions of the records of each of them."""
    data = all_flights()
    held = np.concatenate(boards)
    owners_of_held = np.repeat(np.arange(len(boards)), [len(board) for board in boards])
    # Held-out records and public rows have an owner as well, which is of no consequence.
    others = np.concatenate([data.test, data.public])
    positions = np.concatenate([held, others])
    return replace(
        data,
        features=data.features[positions],
        labels=data.labels[positions],
        held_out=data.held_out[positions],
        public=np.arange(len(positions) - len(data.public), len(positions)),
        owners=np.concatenate([owners_of_held, np.zeros(len(others), int)]).astype(np.int64),
        owner_names=tuple(f"board {number}" for number in range(len(boards))),
    )


def judged_by_months(data, months):
    """Return a data set that only held-out records of some months judge."""
    is_judge = data.held_out & np.isin(months_of(data), months)
    kept = np.flatnonzero(is_judge | ~data.held_out)
    return replace(
        data,
        features=data.features[kept],
        labels=data.labels[kept],
        held_out=data.held_out[kept],
        public=np.flatnonzero(np.isin(kept, data.public)),
        owners=data.owners[kept],
    )


def _drawn(rng, positions, boards, records):
    """Return different records for each of some boards (boards x records). positions: to draw from."""
    return rng.permutation(positions)[: boards * records].reshape(boards, records)


def of_random_records(boards, records, rng):
    """Return boards whose records are drawn at random from all flights."""
    return fleet([*_drawn(rng, all_flights().training, boards, records)])


def of_one_carrier(boards, records, rng):
    """Return boards that each hold flights of one airline, by its share of all flights.

    The smallest airlines, which have no feature of their own, count as one.
    """
    data = all_flights()
    columns = [number for number, name in enumerate(data.feature_names) if name.startswith(CARRIER)]
    flags = data.features[data.training][:, columns] > 0
    carriers = np.where(flags.any(axis=1), flags.argmax(axis=1), len(columns))
    counts = np.bincount(carriers)
    boards_of_carrier = rng.multinomial(boards, counts / counts.sum())
    boards_of_carrier = np.minimum(boards_of_carrier, counts // records)
    boards_of_carrier[counts.argmax()] += boards - boards_of_carrier.sum()
    held = []
    for carrier, count in enumerate(boards_of_carrier):
        held += [*_drawn(rng, data.training[carriers == carrier], count, records)]
    rng.shuffle(held)
    return fleet(held)


def of_different_shares(boards, records, rng):
    """Return boards of which each has another share of late flights: uniform between two bounds."""
    data = all_flights()
    is_late = data.labels[data.training] > 0
    late = rng.permutation(data.training[is_late])
    in_time = rng.permutation(data.training[~is_late])
    late_counts = np.rint(records * rng.uniform(LEAST_SHARE, LARGEST_SHARE, boards)).astype(int)
    held, used_late, used_in_time = [], 0, 0
    for late_count in late_counts:
        in_time_count = records - late_count
        of_board = [
            late[used_late : used_late + late_count],
            in_time[used_in_time : used_in_time + in_time_count],
        ]
        used_late += late_count
        used_in_time += in_time_count
        held.append(np.concatenate(of_board))
    return fleet(held)


def in_order_of_time(boards, records, rng):
    """Return boards of which each holds flights of about a month: later boards, later months.

    A run asks the boards in a random order.
    """
    data = all_flights()
    drawn = rng.permutation(data.training)[: boards * records]
    in_order = drawn[np.argsort(months_of(data)[drawn], kind="stable")]
    return fleet([*in_order.reshape(boards, records)])


def of_repeated_records(boards, records, rng, times):
    """Return boards that hold each of their records so many times.

    The first records of a board are all different, so that `--records` of that number leaves out
    only repetitions, and the mean of the gradients stays the same.
    """
    different = records // times
    drawn = _drawn(rng, all_flights().training, boards, different)
    return fleet([np.tile(of_board, times) for of_board in drawn])


def of_different_numbers(boards, records, rng):
    """Return boards of which every second one holds only a few records."""
    full = _drawn(rng, all_flights().training, boards, records)
    held = []
    for number, of_board in enumerate(full):
        count = records if number % 2 else FEW
        held.append(of_board[:count])
    return fleet(held)
