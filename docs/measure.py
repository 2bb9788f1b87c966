"""Measures the tables about learning anew: `python docs/measure.py [TABLE ...]`.

It simulates the runs of the tables in `learning_tables`, with the seeds 1 to 16, writes the means
and their standard errors into docs/measured.json, and then the tables into the pages that show them.
A run that several tables show is simulated once. All tables take about an hour on one core.

    python docs/measure.py --output build/measured    # the same command continues if interrupted
    python docs/measure.py demo range --seeds 2          # a quick look: writes figures of 2 seeds
"""

import argparse
import json
import re
from pathlib import Path

import learning_tables
import quantile_tables
from learning_tables import Figure

from ternhost.planning.cells import Cell, FinishedCells, run_cells
from ternhost.planning.statistics import mean_and_error
from ternhost.terminal import Progress

ROOT = Path(__file__).parents[1]
MEASURED = ROOT / "docs/measured.json"
TABLES = {**learning_tables.TABLES, **quantile_tables.TABLES}
PAGES = ("README.md", "docs/**/*.md", "examples/**/*.md")
SEEDS = 16


def cells_of(figure, seeds):
    """Return the simulated runs that a figure is the mean of, one for each seed."""
    count = seeds
    if figure.is_fixed:
        count = 1
    cells = []
    for seed in range(1, count + 1):
        # All tables share one list of runs, so that one that is in two tables is the same cell.
        cells.append(Cell("runs", figure.run, {**dict(figure.arguments), "seed": seed}))
    return cells


def measure(tables, seeds, jobs=None, directory=None, progress=print):
    """Simulate the runs of tables; return the rows of their texts, by the name of the table.

    tables: by name, as TABLES. seeds: how many. jobs: processes; None: one for
    each core. directory: that keeps finished runs; None: none. progress: called with lines.
    """
    cells = {}  # by their keys
    for table in tables.values():
        for figure in table.figures:
            for cell in cells_of(figure, seeds):
                cells[cell.key] = cell
    finished = FinishedCells(directory, options={})
    run_cells([*cells.values()], finished, progress, jobs)

    texts = {}
    for name, table in tables.items():
        texts[name] = [list(table.headings)]
        for row in table.rows:
            texts[name].append([text_of(cell, seeds, finished.rows) for cell in row])
    return texts


def text_of(cell, seeds, rows_by_key):
    """Return the text of a cell of a table. rows_by_key: those of all finished runs."""
    if not isinstance(cell, Figure):
        return cell
    values = []
    for each in cells_of(cell, seeds):
        (row,) = rows_by_key[each.key]
        values.append(row[cell.name])
    return cell.in_words(*mean_and_error(values))


def entry_of(table, rows, seeds):
    """Return what docs/measured.json keeps of a table about learning."""
    return {"commands": table.commands, "how": table.how, "seeds": seeds, "table": rows}


def lines_of(rows):
    """Return a table in Markdown."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"|{'|'.join(_padded(cell) for cell in line)}|\n" for line in lines)


def _padded(cell):
    """Return a cell with the spaces that the pages have around it."""
    if cell == "---":
        return cell
    return f" {cell} " if cell else " "


def with_tables(page, tables):
    """Return the text of a page in which the marked tables have new rows.

    tables: the rows of each, by the name of its mark.
    """
    for name, rows in tables.items():
        mark = f"<!-- measured: {name} -->\n"
        marked_table = re.compile(re.escape(mark) + r"(?:\|.*\n)+")
        new_table = mark + lines_of(rows)
        # A backslash in a replacement would begin a reference to a group.
        page = marked_table.sub(new_table.replace("\\", r"\\"), page)
    return page


def write(tables):
    """Write new rows of tables into docs/measured.json and into the pages.

    tables: the entry of each in the file, by its name.
    """
    entries = {**json.loads(MEASURED.read_text()), **tables}
    MEASURED.write_text(file_of(entries))
    new_rows = {name: entry["table"] for name, entry in tables.items()}
    for pattern in PAGES:
        for path in ROOT.glob(pattern):
            text = path.read_text()
            changed = with_tables(text, new_rows)
            if changed != text:
                path.write_text(changed)


def file_of(entries):
    """Return the text of docs/measured.json, with a line for each row of a table."""
    parts = []
    for name, entry in entries.items():
        lines = []
        for key, value in entry.items():
            if isinstance(value, list) and value:
                items = ",\n".join(f"   {json.dumps(item)}" for item in value)
                lines.append(f"  {json.dumps(key)}: [\n{items}\n  ]")
            elif value or key == "commands":
                lines.append(f"  {json.dumps(key)}: {json.dumps(value)}")
        body = ",\n".join(lines)
        parts.append(f" {json.dumps(name)}: {{\n{body}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    """Measure the tables that the command line names, or all of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "table", nargs="*", metavar="TABLE", help=f"by default all: {', '.join(TABLES)}"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"of each run (default: {SEEDS})")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core)")
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="keeps finished runs, to continue from"
    )
    parser.add_argument("--dry", action="store_true", help="print the tables, and write no file")
    args = parser.parse_args()
    if args.seeds < 2:
        parser.error("--seeds must be 2 or more, as a single run has no standard error")
    unknown = [name for name in args.table if name not in TABLES]
    if unknown:
        parser.error(f"no table is named {', '.join(unknown)}; there are: {', '.join(TABLES)}")
    chosen = {name: TABLES[name] for name in args.table or TABLES}
    with Progress("measure") as bar:
        rows = measure(chosen, args.seeds, args.jobs, args.output, bar.step)
    if args.dry:
        for name, table_rows in rows.items():
            print(f"{name}\n\n{lines_of(table_rows)}")
        return
    write({name: entry_of(chosen[name], rows[name], args.seeds) for name in chosen})


if __name__ == "__main__":
    main()
