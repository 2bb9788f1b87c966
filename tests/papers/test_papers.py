"""From the papers to tern: each numbered item has a row that leads somewhere, each figure is drawn,
and what the papers say about their figures holds, or is listed as an error.
"""

import math
import re
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ternhost.cli.tree import build_parser
from ternhost.errors import UsageError
from ternhost.learn.models.training import TrainingPlan
from ternpapers import experiments, orders, safe_ranges
from ternpapers.base import Options
from ternpapers.comparison import contest
from ternpapers.figure import RUNS, Axis, Figure
from ternpapers.formula import worst_variance
from ternpapers.papers.hao import means
from ternpapers.verdicts import Verdict, better, better_everywhere, every

ROOT = Path(__file__).parents[2]
ERRATA = (ROOT / "shared_specs/errata.md").read_text()
PAGE = (ROOT / "docs/papers.md").read_text()
TESTS = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
FIGURES = [(paper, number) for paper in experiments.PAPERS for number in experiments.figures(paper)]


# The page: docs/papers.md


def rows_of(section):
    """The rows of all tables of a section of docs/papers.md, as lists of cells, without the heads."""
    rows = []
    for table in re.findall(r"(?:^\|.*\n)+", f"{section}\n", re.MULTILINE):
        for line in table.splitlines()[2:]:
            rows.append([cell.strip() for cell in line.strip("|").split(" | ")])
    return rows


SECTIONS = {}
for text in PAGE.split("\n## ")[1:]:
    paper = text.partition(" ")[0].lower().rstrip(",")
    if paper != "what":  # the last section, whose table is of statements
        SECTIONS[paper] = rows_of(text)

# How many items of each kind a paper has.
NUMBERED = {
    "wang": {
        "equation": 16,
        "Definition": 1,
        "Lemma": 6,
        "Corollary": 2,
        "Algorithm": 4,
        "Table": 1,
        "Fig.": 11,
    },
    "zhao": {
        "equation": 36,
        "Definition": 1,
        "Lemma": 13,
        "Algorithm": 6,
        "Table": 3,
        "Fig.": 15,
    },
    "hao": {"Definition": 2, "Theorem": 3, "Algorithm": 5, "step": 7, "Table": 1, "Fig.": 3},
    "shen": {
        "Definition": 2,
        "Proposition": 2,
        "Theorem": 1,
        "Algorithm": 2,
        "Table": 2,
        "Fig.": 6,
    },
}
IN_THE_SUPPLEMENT = {("zhao", "equation", 150)}
SINGULAR = {"Lemmas": "Lemma", "Figs.": "Fig.", "steps": "step"}
ROMAN = {"I": 1, "II": 2, "III": 3}
# The settings and figures of MindSpore's guide, which have names.
OF_THE_GUIDE = (
    "`privacy_eval_type`",
    "`laplace_eval_eps`",
    "`cluster_client_num`",
    "`eval_type:",
    "figure laplace_pdf",
    "figure two_cluster",
    "figure eval_flow",
    "figure SILHOUETTE",
)


def numbered_items(cell):
    """The numbered items that the first cell of a row names, as pairs of a kind and a number.

    For example "(26) to (28), Lemmas 6, 7" names three equations and two lemmas.
    """
    items = set()
    kind = None
    for part in cell.rstrip(" *").split(", "):
        found = re.fullmatch(r"(?:(\w+\.?) )?(\()?(\d+|I+)\)?(?: to \(?(\d+)\)?)?", part)
        if found is None:
            continue
        word, bracket, first, last = found.groups()
        if bracket:
            kind = "equation"
        elif word:
            kind = SINGULAR.get(word, word)
        number = ROMAN.get(first) or int(first)
        items.update((kind, each) for each in range(number, int(last or number) + 1))
    return items


@pytest.fixture(scope="module")
def items_with_rows():
    """The numbered items that have rows, by paper."""
    items = {}
    for paper in NUMBERED:
        items[paper] = set().union(*(numbered_items(row[0]) for row in SECTIONS[paper]))
    return items


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_item_of_a_paper_has_a_row(paper, items_with_rows):
    for kind, last in NUMBERED[paper].items():
        wanted = {(kind, number) for number in range(1, last + 1)}
        assert wanted - items_with_rows[paper] == set()


@pytest.mark.parametrize("paper", NUMBERED)
def test_no_row_is_about_an_item_that_its_paper_lacks(paper, items_with_rows):
    lacking = set()
    for kind, number in items_with_rows[paper]:
        if kind != "Section" and number > NUMBERED[paper].get(kind, 0):
            lacking.add((paper, kind, number))
    assert lacking <= IN_THE_SUPPLEMENT


@pytest.mark.parametrize("item", OF_THE_GUIDE)
def test_every_setting_and_figure_of_the_guide_has_a_row(item):
    assert any(first.startswith(item) for first, *_ in SECTIONS["mindspore"])


@pytest.fixture(scope="module")
def parser():
    return build_parser()


@pytest.mark.parametrize("paper", SECTIONS)
def test_rows_lead_to_commands_modules_and_tests_that_exist(paper, parser):
    """A document lists each claim of a paper, what we did about it, and where it is tested.

    Commands in it must be understood, and the files and tests that it names exist.
    """
    for _, _, what, where in SECTIONS[paper]:
        commands = re.findall(r"`tern ([^`]+)`", what)
        assert commands or "not done, because " in what
        for command in commands:
            parser.parse_args(shlex.split(command))
        for name in re.findall(r"`([\w/]+\.py)`", f"{what} {where}"):
            places = [ROOT / base / name for base in ("host/ternpapers", "host/ternhost", "")]
            assert any(place.is_file() for place in places), name
        tests = set(re.findall(r"`(test_\w+)`", where))
        assert tests
        assert tests <= TESTS


# Commands of rows, without those that need a file of the user, and those of figures, which another
# test draws.
COMMANDS = sorted(set(re.findall(r"`tern (?!papers)([^`A-Z]+(?:\{[^`]*)?)`", PAGE)))


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_a_row_runs(command, tern, here):
    tern(*shlex.split(command))


def epsilons_of(crossings):
    """The epsilons at which two mechanisms have the same worst-case variance, in rising order."""
    return sorted(crossing.epsilon() for crossing in crossings)


def pm_sub_over_pm_opt(epsilon):
    """The worst-case variance of PM-SUB, divided by that of PM-OPT."""
    return worst_variance("pm-sub")(epsilon) / worst_variance("pm-opt")(epsilon)


# The decimals in the words of rows, in their order, as tern computes or has them.
DECIMALS = {
    ("wang", "Table I *"): lambda: epsilons_of([orders.PM_AND_DUCHI]),
    ("wang", "setting *"): lambda: [TrainingPlan.regularisation],
    ("zhao", "Table I"): lambda: epsilons_of(orders.OF_EXISTING),
    ("zhao", "Table II"): lambda: [math.log(2), *epsilons_of(orders.OF_PROPOSED)],
    ("zhao", "Fig. 5"): lambda: [*map(pm_sub_over_pm_opt, (0.6, 1, 3, 6)), 0.6],
    ("zhao", "setting, lambda"): lambda: [TrainingPlan.regularisation],
    ("hao", "setting"): lambda: [TrainingPlan.regularisation],
    ("hao", "synthetic data"): lambda: [
        means.SHAPES["Gaussian(0.3, 0.2)"]["mean"],
        means.SHAPES["Gaussian(0.3, 0.2)"]["deviation"],
        means.SHAPES["exponential(0.3)"]["mean"],
    ],
    ("shen", "values of the modes"): lambda: [
        min(safe_ranges.EPSILONS),
        2 * min(safe_ranges.TAUS),
        min(safe_ranges.TAUS),
    ],
}
# Rows whose decimals describe data that do not come with tern, or a setting that it only quotes.
QUOTED = {("hao", "data BR, US"), ("mindspore", "epsilon from noise and probability")}


def decimals_of(text):
    """The numbers with decimals or exponents in a text, as they are written."""
    return re.findall(r"\d+\.\d+|\d+e-\d+", text)


def described(paper, item):
    """The words of the row about an item."""
    (words,) = [row[1] for row in SECTIONS[paper] if row[0] == item]
    return words


@pytest.mark.parametrize(("paper", "item"), DECIMALS)
def test_the_decimals_in_the_words_of_a_row_are_those_that_tern_computes(paper, item):
    written = decimals_of(described(paper, item))
    for text, computed in zip(written, DECIMALS[paper, item](), strict=True):
        digits = len(text.partition(".")[2])
        assert float(text) == (round(computed, digits) if digits else computed)


def test_no_row_has_decimals_in_its_words_that_are_not_computed():
    with_decimals = set()
    for paper, rows in SECTIONS.items():
        with_decimals |= {(paper, row[0]) for row in rows if decimals_of(row[1])}
    assert with_decimals == {*DECIMALS} | QUOTED


# Figures of models, of which Zhao et al. make ten folds, five times.
CROSS_VALIDATED = [("zhao", "8"), ("zhao", "9"), ("zhao", "10"), ("wang", "9"), ("wang", "11")]


@pytest.mark.parametrize(("paper", "number"), CROSS_VALIDATED)
def test_in_full_figures_of_models_have_ten_folds_five_times(paper, number, monkeypatch):
    numbers_of_runs = []
    runs_or = Options.runs_or

    def recorded(options, *args, **kwargs):
        numbers_of_runs.append(runs_or(options, *args, **kwargs))
        return numbers_of_runs[-1]

    monkeypatch.setattr(Options, "runs_or", recorded)
    experiments.figures(paper)[number].cells(Options(in_full=True))
    assert {*numbers_of_runs} == {50}


# The guide about experiments

GUIDE = (ROOT / "docs/guides/experiments.md").read_text()


def test_the_output_in_the_guide_is_that_of_its_command():
    paper, number = re.search(r"^tern papers (\w+) --figure (\w+)", GUIDE, re.MULTILINE).groups()
    (shown,) = re.findall(r"^```text\n(.*?)\n```", GUIDE, re.MULTILINE | re.DOTALL)
    outcome = experiments.run(paper, Options(quick=True, workers=1), figure=number)
    assert shown.splitlines() == list(outcome.lines)


# Figures


def test_rows_name_the_command_of_each_figure():
    named = set(re.findall(r"tern papers (\w+) --figure (\S+?)[ `]", PAGE))
    ours = {("mindspore", "epsilons")}
    assert set(FIGURES) - named == ours


def test_every_test_and_command_that_the_errata_name_exists(parser):
    names = set(re.findall(r"\btest_\w+", ERRATA))
    assert len(names) > 10
    assert names <= TESTS
    for command in re.findall(r"`tern ([^`]+)`", ERRATA):
        parser.parse_args(shlex.split(command))


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize(("paper", "number"), FIGURES)
def test_a_figure_is_drawn(paper, number, tmp_path, monkeypatch):
    """Each figure of the papers is drawn from few points and one run: every curve is in the
    legend, and every point is a finite number.
    """
    monkeypatch.setattr(contest, "EPSILONS", (1.0, 4.0))
    monkeypatch.setattr(Options, "runs_or", lambda *_, **numbers: 1)
    outcome = experiments.run(paper, Options(quick=True, workers=1), figure=number)
    paths = experiments.write(outcome, tmp_path)

    assert {path.suffix for path in paths} == {".csv", ".json", ".png"}
    described = experiments.figures(paper)[number]
    rows = outcome.tables["figure"]
    legend, *_ = outcome.figures["figure"].legends
    assert len({row["curve"] for row in rows}) == len(legend.get_texts())
    for row in rows:
        assert math.isfinite(row[described.x.column])
        assert math.isfinite(row[described.y.column])


@pytest.mark.parametrize(("paper", "number"), FIGURES)
def test_a_figure_without_runs_is_an_exact_one(paper, number):
    described = experiments.figures(paper)[number]
    has_runs = True
    try:
        described.cells(Options(runs=2, quick=True))
    except UsageError:
        has_runs = False
    assert described.exact is not has_runs


def figure_that_says_y_is_1():
    """A figure without cells, whose paper says that y is 1."""
    return Figure(
        title="a figure",
        x=Axis("x", "x"),
        y=Axis("y", "y"),
        cells=lambda options: [],
        statements={"y is 1": lambda rows: Verdict(rows[0]["y"] == 1)},
    )


def test_a_statement_is_not_computed_exactly_by_a_single_run_with_noise():
    described = figure_that_says_y_is_1()
    rows = [{"panel": "one", "curve": "a", "run": 0, "x": 0, "y": 1}]
    (of_one_run,) = described.statement_rows(rows)
    (of_exact_figure,) = replace(described, exact=True).statement_rows(rows)
    assert of_one_run["computed"] == "1 run"
    assert of_exact_figure["computed"] == "exactly"


@pytest.mark.parametrize(
    ("larger_by", "is_better"),
    [
        pytest.param(np.full(20, 1.0), True, id="larger errors in every run"),
        pytest.param(np.full(20, -1.0), False, id="smaller errors in every run"),
        pytest.param(np.tile([1.0, -1.0], 10), None, id="now larger, now smaller"),
        pytest.param(np.zeros(20), None, id="the same errors"),
    ],
)
def test_one_curve_is_better_than_another_only_beyond_the_noise_of_runs(larger_by, is_better):
    """Whether curve a of a figure is better than b is told from 20 runs:

    True or False if one is so beyond doubt, else None. The errors of b are larger than those of a
    by `larger_by` in each run.
    """
    noise = np.random.default_rng(5).normal(0, 0.5, 20)
    rows = []
    for run, (of_run, more) in enumerate(zip(noise, larger_by, strict=True)):
        row = {"panel": "one", "run": run, "x": 1}
        rows.append({**row, "curve": "a", "error": 5 + of_run})
        rows.append({**row, "curve": "b", "error": 5 + of_run + more})
    assert better("error", ("a",), ("b",), rows).holds is is_better


@pytest.mark.parametrize(("panels", "holds"), [(1, False), (10, None)])
def test_a_failure_in_one_of_many_cases_may_be_chance(panels, holds):
    """In one panel a is worse than b at a level of 4 %, and in the others it is surely better."""
    worse = np.tile([1.0, -0.2], 10) - 0.09
    sure = np.tile([-1.0, -0.9], 10)
    rows = []
    for panel in range(panels):
        for run in range(20):
            more = worse[run] if panel == 0 else sure[run]
            row = {"panel": panel, "run": run, "x": 1}
            rows.append({**row, "curve": "a", "error": 50 + more})
            rows.append({**row, "curve": "b", "error": 50.0})
    assert better("error", ("a",), ("b",), rows).holds is holds


def test_exact_curves_are_compared_at_every_x():
    """Curve a is better than b and c at two of three xs; at the third one it is as good as c."""
    rows = []
    for x, errors in enumerate([(1, 2, 3), (1, 2, 3), (2, 3, 2)]):
        for curve, error in zip("abc", errors, strict=True):
            rows.append({"panel": "one", "run": 0, "x": x, "curve": curve, "error": error})
    verdict = better_everywhere("error", ("a",), ("b", "c"), rows)
    assert verdict == Verdict(False, "in 2 of 3 cases")
    assert better_everywhere("error", ("a",), ("b",), rows).holds


@pytest.mark.parametrize(
    ("scores", "rises"),
    [
        pytest.param([(0.1, 0.3), (0.2, 0.4)], True, id="in both runs"),
        pytest.param([(0.1, 0.3), (0.5, 0.4)], False, id="in one of two runs"),
    ],
)
def test_mindspore_s_score_rises_only_if_it_does_so_in_every_run(scores, rises):
    """scores: in each run, those of a model with a large loss and of one with a small loss."""
    rows = []
    for run, of_run in enumerate(scores):
        for score in of_run:
            row = {"panel": "silhouette", "curve": "laplace_eval_eps 230260", "run": run}
            rows.append({**row, "score": score})
    described = experiments.figures("mindspore")["silhouette"]
    assert described.statements["the score rises as the loss falls"](rows).holds is rises


def test_a_statement_about_no_case_cannot_be_told():
    assert every([]).holds is None


def test_a_statement_that_nothing_here_can_tell_stands_in_the_result_with_its_reason():
    described = replace(
        figure_that_says_y_is_1(), untold={"it is 97 % accurate": "needs a network"}
    )
    row = {"panel": "one", "curve": "a", "run": 0, "x": 0, "y": 2}
    lines = described.outcome(Options(), {RUNS: [row]}).lines
    assert "not so here: y is 1" in lines
    assert "cannot be told here: it is 97 % accurate (needs a network)" in lines
