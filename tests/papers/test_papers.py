"""From the papers to tern: each numbered item has a row that leads somewhere, each figure is drawn,
and what the papers say about their figures holds, or is listed as an error.
"""

import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from ternhost.cli.tree import build_parser
from ternpapers import experiments, figure
from ternpapers.base import Options
from ternpapers.comparison import contest
from ternpapers.papers import hao

ROOT = Path(__file__).parents[2]
ERRATA = (ROOT / "shared_specs/errata.md").read_text()
PAGE = (ROOT / "docs/papers.md").read_text()
TESTS = {path.stem for path in (ROOT / "tests").rglob("test_*.py")}
FIGURES = [(paper, number) for paper in experiments.PAPERS for number in experiments.figures(paper)]


def rows_of(section):
    """The rows of a table of docs/papers.md, as lists of cells."""
    lines = [line for line in section.splitlines() if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return rows[2:]  # without the head


SECTIONS = {}
for text in PAGE.split("\n## ")[1:]:
    SECTIONS[text.partition(" ")[0].lower().rstrip(",")] = rows_of(text)
ROWS = [(paper, row) for paper, rows in SECTIONS.items() for row in rows]
NUMBERED = {
    "wang": {"Algorithm": "1 2 3 4", "Table": "I", "Fig.": "1 2 3 4 5 6 7 8 9 10 11"},
    "zhao": {
        "Algorithm": "1 2 3 4 5 6",
        "Table": "I II III",
        "Fig.": "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
    },
    "hao": {"Fig.": "1 2 3"},
    "shen": {"Algorithm": "1 2", "Table": "1 2", "Fig.": "1 2 3 4 5 6"},
    "mindspore": {
        "`privacy_eval_type`": "",
        "`laplace_eval_eps`": "",
        "`cluster_client_num`": "",
        "`eval_type:": "",
        "figure": "laplace_pdf two_cluster eval_flow SILHOUETTE",
    },
}


@pytest.mark.parametrize("paper", NUMBERED)
def test_every_numbered_item_of_a_paper_has_a_row(paper):
    items = [f"{first} ".replace(",", "") for first, *_ in SECTIONS[paper]]
    for kind, numbers in NUMBERED[paper].items():
        for number in numbers.split() or [""]:
            wanted = f"{kind} {number}".strip() + " "
            assert any(item.startswith(wanted) for item in items), wanted


@pytest.mark.parametrize("paper", SECTIONS)
def test_rows_lead_to_commands_modules_and_tests_that_exist(paper):
    """A document lists each claim of a paper, what we did about it, and where it is tested.

    Commands in it must be understood, and the files and tests that it names exist.
    """
    for _, _, what, where in SECTIONS[paper]:
        commands = re.findall(r"`tern ([^`]+)`", what)
        assert commands or "not done, because " in what
        for command in commands:
            build_parser().parse_args(shlex.split(command))
        for name in re.findall(r"`([\w/]+\.py)`", f"{what} {where}"):
            places = [ROOT / base / name for base in ("host/ternpapers", "host/ternhost", "")]
            assert any(place.is_file() for place in places), name
        tests = set(re.findall(r"`(test_\w+)`", where))
        assert tests
        assert tests <= TESTS


def test_rows_name_the_command_of_each_figure():
    named = set(re.findall(r"tern papers (\w+) --figure (\S+?)[ `]", PAGE))
    ours = {("mindspore", "epsilons")}
    assert set(FIGURES) - named == ours


def test_every_test_and_command_that_the_errata_name_exists():
    names = set(re.findall(r"\btest_\w+", ERRATA))
    assert len(names) > 10
    assert names <= TESTS
    for command in re.findall(r"`tern ([^`]+)`", ERRATA):
        build_parser().parse_args(shlex.split(command))


@pytest.mark.sampled(5)
@pytest.mark.slow
@pytest.mark.parametrize(("paper", "number"), FIGURES)
def test_a_figure_is_drawn(paper, number, tmp_path, monkeypatch):
    """Each figure of the papers is drawn from few points and one run: every curve is in the
    legend, and every point is a finite number.
    """
    monkeypatch.setattr(contest, "_EPSILONS", (1.0, 4.0))
    monkeypatch.setattr(hao, "_RATES", (0.1,))
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


# Figures whose statements are checked here, in a small version, and what is not so of them.
NOT_SO = {
    ("wang", "1"): (),
    ("wang", "3"): (),
    ("wang", "4"): (),
    ("wang", "5"): (),
    ("wang", "6"): (),
    ("wang", "7"): (),
    ("zhao", "2"): ("HM-TP is better than every other mechanism",),
    ("zhao", "3"): (),
    ("zhao", "6"): (),
    ("zhao", "11"): (),
    ("hao", "1"): ("a larger mu is more accurate",),
    ("hao", "2"): [
        f"HierA is better than {name} at the true epsilon" for name in ("pm", "harmony")
    ],
    ("mindspore", "silhouette"): (),
    ("shen", "2"): ("PDPM is better than Laplace noise",),
}
RUNS = {("hao", "2"): 60, ("zhao", "11"): 20}


@pytest.mark.sampled(3)
@pytest.mark.slow
@pytest.mark.parametrize(("paper", "number"), NOT_SO)
def test_what_a_paper_says_about_a_figure_holds_or_is_an_erratum(paper, number):
    options = Options(runs=RUNS.get((paper, number)), quick=True, workers=2)
    outcome = experiments.run(paper, options, figure=number)
    verdicts = {row["statement"]: row["verdict"] for row in outcome.tables["statements"]}
    not_so = {text for text, verdict in verdicts.items() if verdict == "not so here"}
    assert not_so == {*NOT_SO[paper, number]}
    assert "so here" in verdicts.values() or {*verdicts} == not_so


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
    assert figure.better("error", ("a",), ("b",), rows).holds is is_better


def test_exact_curves_are_compared_at_every_x():
    """Curve a is better than b and c at two of three xs; at the third one it is as good as c."""
    rows = []
    for x, errors in enumerate([(1, 2, 3), (1, 2, 3), (2, 3, 2)]):
        for curve, error in zip("abc", errors, strict=True):
            rows.append({"panel": "one", "run": 0, "x": x, "curve": curve, "error": error})
    verdict = figure.better_everywhere("error", ("a",), ("b", "c"), rows)
    assert verdict == figure.Verdict(False, "in 2 of 3 cases")
    assert figure.better_everywhere("error", ("a",), ("b",), rows).holds


def test_a_statement_that_nothing_here_can_tell_stands_in_the_result_with_its_reason():
    described = figure.Figure(
        title="a figure",
        x=figure.Axis("x", "x"),
        y=figure.Axis("y", "y"),
        cells=lambda options: [],
        statements={"y is 1": lambda rows: figure.Verdict(rows[0]["y"] == 1)},
        untold={"it is 97 % accurate": "needs a network"},
    )
    row = {"panel": "one", "curve": "a", "run": 0, "x": 0, "y": 2}
    lines = described.outcome(Options(), {figure.RUNS: [row]}).lines
    assert "not so here: y is 1" in lines
    assert "cannot be told here: it is 97 % accurate (needs a network)" in lines
