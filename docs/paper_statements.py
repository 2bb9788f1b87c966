"""Checks all statements of the papers about their figures anew, and writes the table of docs/papers.md.

It runs `tern papers statements --quick`, which takes some minutes on two cores:

    python docs/paper_statements.py --output build/statements    # continues if interrupted

The table is a copy of that in docs/measured.json.
"""

import argparse
from pathlib import Path

import measure

from ternhost.terminal import Progress
from ternpapers import experiments
from ternpapers.base import Options
from ternpapers.figure import NOT_COMPUTED

NAME = "paper-statements"
HEADINGS = ["figure", "what the paper says", "verdict", "how it was computed"]
PAPERS = {
    "zhao": "Zhao",
    "wang": "Wang",
    "hao": "Hao",
    "shen": "Shen",
    "mindspore": "MindSpore",
}
ROMAN = {"1": "I", "2": "II"}


def figure_in_words(name):
    """Return the name of a figure as a page shows it: "Zhao, Fig. 6" for "zhao 6"."""
    paper, number = name.split(" ", 1)
    if number.isdecimal():
        number = f"Fig. {number}"
    elif number.startswith("table-"):
        table = number.removeprefix("table-")
        number = f"Table {ROMAN[table]}"  # as Zhao et al. and Wang et al. number theirs
    return f"{PAPERS[paper]}, {number}"


def table_of(rows):
    """Return the rows of the table of the page, the headings first.

    rows: those of the table of `tern papers statements`.
    """
    table = [HEADINGS]
    for row in rows:
        notes = []
        if row["computed"] != NOT_COMPUTED:
            notes.append(row["computed"])
        if row["detail"]:
            notes.append(row["detail"])
        how = ", ".join(notes)
        table.append([figure_in_words(row["figure"]), row["statement"], row["verdict"], how])
    return table


def main():
    """Check all statements, and write the table into docs/measured.json and docs/papers.md."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core)")
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="keeps finished parts, to continue from"
    )
    args = parser.parse_args()
    if args.output:
        args.output.mkdir(parents=True, exist_ok=True)
    with Progress("statements") as bar:
        options = Options(quick=True, workers=args.jobs, progress=bar.step)
        outcome = experiments.run("statements", options, args.output)
    table = table_of(outcome.tables["statements"])
    entry = {"commands": ["papers statements --quick"], "how": "seed 1", "table": table}
    measure.write({NAME: entry})


if __name__ == "__main__":
    main()
