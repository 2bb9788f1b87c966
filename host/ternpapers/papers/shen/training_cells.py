"""The cells of the figures whose models are trained, as `averaging` does it."""

from collections.abc import Callable, Iterable

from ternhost.planning.cells import Cell, Row
from ternpapers.base import Options, load
from ternpapers.datasets import stand_ins
from ternpapers.figure import RUNS

END = 5  # so many last rounds are the end of training, over which an accuracy is averaged


def cells_of_training(
    work: Callable[..., list[Row]], options: Options, paper_rounds: int, **choices: Iterable[object]
) -> list[Cell]:
    """Return a cell for each combination of the choices, on the data set of the options.

    work: what each cell calls, with the data set, the number of rounds, the seeds and a
    combination. paper_rounds: the number of rounds in the paper's figure. Raises UsageError if the
    data set does not name its classes.
    """
    source = options.data or stand_ins.PICTURES
    load(source, classes=True)  # raises if it names none
    rounds = 30
    if options.quick:
        rounds = 8
    elif options.in_full:
        rounds = paper_rounds
    # The paper only says "several" runs.
    common = {"source": source, "rounds": rounds, "seeds": options.seeds(20, quick=10, paper=30)}
    return Cell.for_each_combination(table=RUNS, work=work, common=common, cost=1.0, **choices)
