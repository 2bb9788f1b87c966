"""python -m foreign: measure what tern learns on sets that it does not bundle.

Run it in the folder tests. Runs that have finished are kept in build/foreign, from where the same
command continues after an interruption; after a change of the code, name another --output. It
prints the tables, and with --write puts them into docs/measured.json and into the pages. Then it
prints a sentence for each promise that the figures do not keep. If there is one, the exit code is 1.
"""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from foreign import quantiles, runs, tables
from foreign.runs import DEFAULT, DEVICE, NAMED, NONE, RECORD, Setting
from foreign.sets import PUBLIC_ROWS, RIGHT, SETS, write
from foreign.tables import Outcome
from ternhost.planning.cells import Cell, FinishedCells, Row, run_cells
from ternhost.terminal import Progress

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build/foreign"
SEEDS = 16
EPSILONS = {RECORD: ("1", "4", "20"), DEVICE: ("1", "4")}
EPSILONS_OF_FLEETS = ("1", "4")
EPSILON_OF_ROWS = {RECORD: "1", DEVICE: "4"}  # at which public rows are compared
UNITS, ROWS, MANY, QUANTILES = "units", "public-rows", "many", "quantiles"  # the tables
CHOICES = (UNITS, ROWS, MANY, QUANTILES, "all")
_COST_OF_PLAN = 12  # runs
HOW = "python -m foreign --write, in the folder tests"


def settings_of(folder: Path, names: Sequence[str]) -> list[Setting]:
    """Return all settings of some sets."""
    settings = []
    for name in names:
        for unit in runs.UNITS:
            for epsilon in EPSILONS[unit]:
                settings.append(runs.setting_of(folder, name, unit, epsilon))
    for name in [each for each in names if each in runs.FLEETS]:
        for unit in runs.UNITS:
            for epsilon in EPSILONS_OF_FLEETS:
                settings.append(runs.setting_of(folder, name, unit, epsilon, is_fleet=True))
    return settings


def kinds_of(setting: Setting, chosen: str) -> list[str]:
    """Return with which public rows a setting is trained: their kinds, as of `runs.trained`.

    chosen: the tables that are wanted, UNITS, ROWS, MANY, QUANTILES or "all".
    """
    if chosen == QUANTILES:
        return []
    if setting.is_fleet:
        if chosen not in (MANY, "all"):
            return []
        return [NONE, RIGHT, NAMED] if setting.unit == DEVICE else [NONE]
    if chosen == MANY:
        return []
    kinds = []
    if chosen != ROWS:
        kinds.append(DEFAULT)
    dataset, _ = setting.loaded
    uses_rows = setting.unit == RECORD or runs.has_direct(dataset)
    if chosen != UNITS and uses_rows and setting.epsilon == EPSILON_OF_ROWS[setting.unit]:
        kinds += [NONE, *PUBLIC_ROWS]
    return kinds


class Measuring:
    """The runs of some settings, and what they gave."""

    def __init__(
        self, settings: Sequence[Setting], chosen: str, seeds: int, *, plans: bool
    ) -> None:
        """List the runs.

        chosen: as of `kinds_of`. seeds: how many there are of each run. plans: whether plans are
        made, too.
        """
        self._references: dict[Setting, Cell] = {}
        self._plans: dict[Setting, Cell] = {}
        self._runs: dict[Setting, dict[str, list[Cell]]] = {}
        for setting in settings:
            kinds = kinds_of(setting, chosen)
            if not kinds:
                continue
            only = {"setting": setting}
            self._references[setting] = Cell("references", runs.references, only)
            if plans and DEFAULT in kinds:
                self._plans[setting] = Cell("plans", runs.planned, only, _COST_OF_PLAN)
            self._runs[setting] = {}
            for public in kinds:
                self._runs[setting][public] = Cell.for_each_combination(
                    "runs", runs.trained, only, public=[public], seed=range(1, seeds + 1)
                )

    @property
    def cells(self) -> list[Cell]:
        """All runs."""
        cells = [*self._references.values(), *self._plans.values()]
        for by_public in self._runs.values():
            for of_seeds in by_public.values():
                cells += of_seeds
        return cells

    def outcomes(self, rows: dict[str, list[Row]]) -> dict[Setting, Outcome]:
        """Return what the runs gave. rows: those of all cells, by their keys."""
        outcomes = {}
        for setting, reference in self._references.items():
            plan = self._plans.get(setting)
            by_public = {}
            for public, cells in self._runs[setting].items():
                by_public[public] = [rows[cell.key][0] for cell in cells]
            outcomes[setting] = Outcome(
                references=rows[reference.key][0],
                plan=rows[plan.key][0] if plan else None,
                runs=by_public,
            )
        return outcomes


def tables_of(outcomes: dict[Setting, Outcome], chosen: str) -> dict[str, list[list[str]]]:
    """Return the tables by their names in docs/measured.json. chosen: as of `kinds_of`."""
    of_fleets, others = {}, {}
    for setting, outcome in outcomes.items():
        if setting.is_fleet:
            of_fleets[setting] = outcome
        else:
            others[setting] = outcome
    made = {}
    if chosen not in (MANY, QUANTILES):
        made["foreign-sets"] = tables.of_sets(others)
    if chosen in (UNITS, "all"):
        made["foreign-records"] = tables.of_unit(RECORD, others)
        made["foreign-devices"] = tables.of_unit(DEVICE, others)
    if chosen in (ROWS, "all"):
        made["foreign-public-rows"] = tables.of_public_rows(others)
    if chosen in (MANY, "all"):
        made["foreign-many"] = tables.of_many(of_fleets)
    return made


def write_into_docs(made: dict[str, list[list[str]]], seeds: int) -> None:
    """Write tables into docs/measured.json and into the pages that show them."""
    sys.path.append(str(ROOT / "docs"))
    import measure

    entries = {}
    for name, rows in made.items():
        entries[name] = {"commands": [], "how": HOW, "seeds": seeds, "table": rows}
    measure.write(entries)


def digest_of_code() -> str:
    """Return what changes with the code that the runs depend on."""
    digest = hashlib.sha256()
    for folder in ("host/ternhost", "firmware/tern", "tests/foreign"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def main() -> int:
    """Measure what the command line names; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m foreign", description=__doc__)
    parser.add_argument("--set", action="append", choices=SETS, help="a set; may be repeated")
    parser.add_argument("--table", choices=CHOICES, default="all")
    parser.add_argument("--no-plans", action="store_true", help="leave out what takes longest")
    parser.add_argument("--write", action="store_true", help="write the tables into docs, too")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"default: {SEEDS}")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core)")
    parser.add_argument("--output", type=Path, default=FOLDER, help="keeps finished runs")
    args = parser.parse_args()
    if args.write and args.set:
        parser.error("--write needs all sets, so that no row of a table is lost: leave out --set")
    names = args.set or list(runs.FLEETS if args.table == MANY else SETS)
    of_quantiles = {}
    if args.table in (QUANTILES, "all"):
        of_quantiles = quantiles.cells_of(args.output, names, args.seeds)
    with Progress("foreign") as progress:
        for name in names:
            progress.step(f"writing {name}")
            write(SETS[name], args.output)
        settings = settings_of(args.output, names)
        measuring = Measuring(settings, args.table, args.seeds, plans=not args.no_plans)
        finished = FinishedCells(args.output, {"code": digest_of_code()})
        cells = [*measuring.cells, *chain(*of_quantiles.values())]
        run_cells(cells, finished, progress.step, args.jobs)

    outcomes = measuring.outcomes(finished.rows)
    made = tables_of(outcomes, args.table)
    if of_quantiles:
        made["foreign-quantiles"] = quantiles.table_of(of_quantiles, finished.rows)
    for name, rows in made.items():
        print(f"\n{name}")
        for row in rows:
            print(f"| {' | '.join(row)} |")
    if args.write:
        write_into_docs(made, args.seeds)
    sentences = list(tables.broken(outcomes))
    print(f"\n{len(sentences)} promises are not kept:")
    print("\n".join(sentences))
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
