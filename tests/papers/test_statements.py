"""What the papers say about their figures: the table of docs/papers.md is that of the figures.

The table has a verdict on each statement. Exact verdicts are computed again. Those with noise are not
contradicted by another seed.
"""

import json
from pathlib import Path

import paper_statements
import pytest

from ternpapers import experiments
from ternpapers.base import Options

ROOT = Path(__file__).parents[2]
ENTRY = json.loads((ROOT / "docs/measured.json").read_text())[paper_statements.NAME]
_, *ROWS = ENTRY["table"]
FIGURES = [
    (paper, number)
    for paper in experiments.PAPERS
    for number, figure in experiments.figures(paper).items()
    if figure.statements or figure.untold
]
EXACT = [(paper, number) for paper, number in FIGURES if experiments.figures(paper)[number].exact]
NOISY = [figure for figure in FIGURES if figure not in EXACT]
OPPOSITE = {"so here": "not so here", "not so here": "so here"}


def rows_of(paper, number):
    """The rows of the table about a figure, as lists of cells."""
    name = paper_statements.figure_in_words(f"{paper} {number}")
    return [row for row in ROWS if row[0] == name]


def computed(paper, number, options):
    """The rows of the table about a figure, computed now."""
    outcome = experiments.run(paper, options, figure=number)
    rows = [{"figure": f"{paper} {number}", **row} for row in outcome.tables["statements"]]
    _, *table = paper_statements.table_of(rows)
    return table


@pytest.mark.parametrize(("paper", "number"), FIGURES)
def test_the_table_has_each_statement_about_a_figure(paper, number):
    figure = experiments.figures(paper)[number]
    on_page = [statement for _, statement, *_ in rows_of(paper, number)]
    assert on_page == [*figure.statements, *figure.untold]


def test_the_table_has_no_statement_about_other_figures():
    names = [paper_statements.figure_in_words(f"{paper} {number}") for paper, number in FIGURES]
    assert {name for name, *_ in ROWS} == {*names}


@pytest.mark.parametrize(("paper", "number"), EXACT)
def test_an_exact_verdict_is_computed_again(paper, number):
    assert computed(paper, number, Options(workers=1)) == rows_of(paper, number)


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize(("paper", "number"), NOISY)
def test_a_verdict_with_noise_is_not_contradicted_by_another_seed(paper, number):
    verdicts = {statement: verdict for _, statement, verdict, _ in rows_of(paper, number)}
    others = computed(paper, number, Options(quick=True, seed=2, workers=2))
    for _, statement, other_verdict, _ in others:
        assert other_verdict != OPPOSITE.get(verdicts[statement]), statement
