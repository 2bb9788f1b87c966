"""A privacy statement says what was certified, names the evidence of each sentence, and is right
for every fleet.
"""

import ast
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from harness import in_process  # noqa: F401, registers inprocess:N
from harness.pages import anchors

from tern import card as cards
from ternhost import datasets, errors
from ternhost.privacy import mechanisms
from ternhost.privacy.accounting import Policy
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.guarantee import Bounds, Guarantee, Span
from ternhost.provision import boards as provision
from ternhost.run.guarantees import classes_of
from ternhost.statement import gather, page, sentences
from ternhost.statement.evidence import EVIDENCE, Key
from ternhost.statement.facts import Facts, Holdings, Kind, ReportFormat
from ternhost.store.store import Store

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("here", "coarse")
CARD = mechanisms.design("three-outputs", 1).card
REPORT = ReportKind.of(cards.decode(CARD))
SUMS = ReportKind(30_000, gaussian=True, unit=60)
TRAIN = ["train", "--data", "iris", "--fleet", "simulated:30", "--no-report", "--quiet"]


def facts_of(report, **changes):
    """The facts of a run with one kind of report, which was asked for twice, after another run."""
    promised = [
        Guarantee.of(span, {report: times}, 1e-6)
        for span, times in ((Span.REPORT, 1), (Span.RUN, 2), (Span.LIFE, 3))
    ]
    facts = Facts(Kind.RUN, "mine", 0.0, report.unit, 1e-6, promised=promised)
    return replace(facts, **changes)


FACTS = {
    "device": facts_of(REPORT, report_formats=[ReportFormat(CARD, 1, 18)]),
    "records": facts_of(SUMS, all_records=Bounds(None, 402.0, 1e-6)),
    "classes": facts_of(REPORT, promised=[Guarantee.of(Span.RUN, {REPORT: 1}, 1e-6, 0.3)]),
    "budget": facts_of(REPORT, budgets=[Guarantee.of_budget(4_000_000, 0, 0, 1e-6)]),
    "simulated": facts_of(REPORT, why_not_real="The clients are simulated."),
    "served": facts_of(REPORT, is_endless=True, most_reports=7),
    "results": facts_of(REPORT, reports_answers=True),
    "collected": facts_of(REPORT, collects="means and frequencies", attributes=["a", "b"]),
    "broker": facts_of(REPORT, fleet_kind="mqtt", holdings=Holdings(7, 64, "flights", ["delay"])),
    "board": Facts(
        Kind.BOARD, "a0", 0.0, 60, 1e-6, budgets=[Guarantee.of_budget(311_064, 1, 60, 1e-6)]
    ),
    "nothing": Facts(Kind.STORE, "empty", 0.0, 0, 1e-6),
}


class Text(HTMLParser):
    """The text of a page."""

    def __init__(self, source):
        super().__init__()
        words = []
        self.handle_data = words.append
        self.feed(source)
        self.text = " ".join(" ".join(words).split())


# Evidence


def named_in(path):
    """The names of the tests in a file."""
    return {
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("key", Key)
def test_the_pages_and_tests_of_evidence_exist(key):
    """A privacy statement gives evidence for each of its sentences: places in the documentation and
    tests of the code. All of them exist, so that a reader can check each claim.
    """
    for source in EVIDENCE[key].sources:
        path, _, anchor = source.partition("#")
        assert anchor in anchors(ROOT / path), source
    for test in EVIDENCE[key].tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).is_file(), test
        assert not name or name in named_in(ROOT / path), test


@pytest.mark.parametrize("name", FACTS)
def test_every_sentence_has_evidence(name):
    for section in sentences.sections(FACTS[name]):
        for part in section.parts:
            assert part.keys, part


# Numbers


@pytest.mark.parametrize("name", FACTS)
def test_every_guarantee_is_stated_in_its_own_words(name):
    facts = FACTS[name]
    text = Text(page.html(facts)).text
    of_run = [guarantee for guarantee in facts.promised if guarantee.span == Span.RUN]
    for guarantee in [*facts.budgets, *of_run]:
        assert guarantee.words()[1:] in text  # its first letter may be a capital


@pytest.mark.parametrize("name", FACTS)
def test_no_number_of_the_table_is_below_the_certified_one(name):
    for guarantee in sentences.shown(FACTS[name]):
        for bounds in (guarantee.bounds, guarantee.content, guarantee.event):
            if bounds is not None:
                shown = [row[0] for row in sentences.numbers(bounds)]
                assert float(shown[-1].split()[0].replace(",", "")) >= bounds.epsilon


# The page


def test_texts_from_outside_are_escaped():
    """Names of runs, data sets and labels come from users and may be hostile. A statement shows
    them as text: in HTML without elements, in Markdown without formatting, in both without escapes
    for a terminal.
    """
    name = "<img src=x> | a*b [c](d) \x1b[31m"
    facts = replace(FACTS["device"], name=name, holdings=Holdings(1, None, "<data>", ["a|b"]))

    html, markdown = page.html(facts), page.markdown(facts)

    assert "<img" not in html
    assert "<data>" not in html
    assert "\x1b" not in html + markdown
    assert r"\<data\>" in markdown
    assert r"“a\|b”" in markdown


# The command


def guarantees_of(tern, *words):
    return [
        Guarantee.from_json(each) for each in tern("privacy", "--json", *words).json["guarantees"]
    ]


def guarantees_in(result):
    """The guarantees in the result of a run, as a statement lists them."""
    return [each for found in classes_of(result) for each in (found.report, found.run, found.life)]


@pytest.mark.parametrize(
    "words",
    [
        "train --data iris --fleet simulated:30 --unit record --records 3 --run-epsilon 1",
        "train --data iris --fleet simulated:30 --epsilons 1:0.5,2:0.5",
        "collect --data wine --fleet simulated:50",
        "infer --data iris --fleet simulated:50",
    ],
    ids=["of a record", "of classes", "collect", "infer"],
)
def test_a_plan_and_its_run_have_the_same_guarantees(words, tern):
    command = [*words.split(), "--no-report", "--quiet"]
    planned = guarantees_of(tern, "--plan", *command)
    assert not Path("runs").exists()
    result = tern(*command, "--name", "mine", "--json").json
    assert planned == guarantees_of(tern, "mine") == guarantees_in(result)


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (0, "of what the records say"),
        (1, "of “a0”."),
        (3, "of “a0”, “a1” and “a2”."),
        (8, "of “a0”, “a1”, “a2”, “a3”, “a4”, “a5” and 2 more."),
    ],
)
def test_a_statement_names_the_first_attributes_that_a_run_collects(count, named):
    names = [f"a{number}" for number in range(count)]
    facts = facts_of(REPORT, collects="means and frequencies", attributes=names)
    assert f"The run collects means and frequencies {named}" in Text(page.html(facts)).text


def test_the_statement_of_a_run_says_what_was_collected(tern):
    tern("collect", "--data", "iris", "--fleet", "simulated:30", *TRAIN[-2:], "--name", "mine")
    tern("privacy", "mine")
    text = Path("runs/mine/privacy.md").read_text().replace("\\", "")
    assert "The run collects means and frequencies of “sepal length (cm)”, " in text


def test_without_a_name_the_newest_run_is_stated(tern):
    for name in ("older", "newer"):
        tern(*TRAIN, "--epsilon", "1", "--name", name)
    tern("privacy")
    assert [path.parent.name for path in Path("runs").glob("*/privacy.md")] == ["newer"]


def test_simulated_clients_enforce_nothing(tern):
    tern(*TRAIN, "--epsilon", "1", "--budget", "3", "--name", "mine")
    tern("privacy", "mine")
    text = Path("runs/mine/privacy.md").read_text().replace("\\", "")
    assert "Each device enforces" not in text
    assert "the host refuses runs of a store beyond" in text


def test_all_records_of_a_device_lie_in_one_run_more_than_fit():
    """A device protects runs of 47 successive records each. Its 640 records fill 13.6 runs, but
    begin and end within one, so that they touch 15. Replacing all of them removes 15 units and adds
    15: the cost in rho (zero-concentrated privacy) grows with the square of 30.
    """
    account = {SUMS: 1}
    found = gather.bounds_of_all_records([account], 47, 640, 1e-6)  # delta is the last
    of_thirty_units = replace(SUMS, cost=30**2 * SUMS.cost)
    assert found == Bounds.of({of_thirty_units: 1}, 1e-6)


def test_all_records_of_a_device_lose_no_more_than_the_sum_of_their_pure_epsilons():
    """Eight records are taken out and eight others put in: 16 steps of epsilon 1 each, for which no
    delta is needed. By rho it would be far more.
    """
    account = {ReportKind(1_000_000, unit=1): 1}
    found = gather.bounds_of_all_records([account], 1, 8, 1e-6)  # delta is the last
    assert (found.pure, found.epsilon, found.exceeded) == (16, 16, 0)


@pytest.fixture
def board(tmp_path):
    """The port of a board with a device that protects records, and has an (4, 1e-6) for life."""
    rows = datasets.load("flights").records(range(5)).reshape(-1, 29)
    with Store("keys.sqlite") as store:
        policy = Policy(311_064, 311_064, 1)
        provision.provision_fleet(store, [Path("a").absolute()], rows, [policy], 5, 1)
    return f"inprocess:{Path('a').absolute()}"


def test_what_a_board_has_paid_is_told(board, tern):
    """The board's device has epsilon 4 for life, of which a run plans to use 1. `tern` states both
    by the board's own ledger: what has been paid so far, nearly all of that 1, and the whole
    budget. The statement of the run ends with the same budget.
    """
    words = (
        f"train --fleet port:{board} --store keys.sqlite --unit record --records 5 --run-epsilon 1"
    )
    tern(*words.split(), "--name", "mine", "--no-report", "--quiet")

    paid, budget = guarantees_of(tern, board)
    assert paid.span == Span.LIFE
    assert 0.99 < paid.bounds.epsilon <= 1 < budget.bounds.epsilon

    of_run = guarantees_of(tern, "mine")
    assert of_run[-1] == budget
    assert "Frames travel over a cable, unencrypted." in Path("runs/mine/privacy.md").read_text()


@pytest.mark.parametrize("words", ["", "nothing", "--plan runs", "--plan train --fleet port:a0"])
def test_what_cannot_be_stated_is_refused(words, tern):
    tern("privacy", *words.split(), code=errors.USAGE)
    assert not list(Path().glob("privacy*"))
