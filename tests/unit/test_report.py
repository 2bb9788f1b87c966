"""The report is complete, self-contained and escaped, and shows the results of the run."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tern import card as cards
from ternhost.errors import UsageError
from ternhost.learn.liar_results import training_lines
from ternhost.privacy import mechanisms
from ternhost.privacy.composing import ReportKind
from ternhost.privacy.guarantee import Guarantee, Span
from ternhost.run.guarantees import ClassGuarantees
from ternhost.run.report import page as report
from ternhost.run.report import training
from ternhost.run.result import load


def promised(unit=0):
    """The guarantees of a run of one report of epsilon 2, before which there was another."""
    report = ReportKind(cards.decode(mechanisms.design("three-outputs", 2).card).epsilon, unit=unit)
    of = [
        Guarantee.of(*each, 1e-6) for each in ((Span.REPORT, {report: 1}), (Span.RUN, {report: 1}))
    ]
    return [ClassGuarantees(*of, Guarantee.of(Span.LIFE, {report: 2}, 1e-6)).as_json()]


def result(**changes):
    """The result of a run of `tern train`."""
    card = mechanisms.design("three-outputs", 2).card
    rounds = 5
    return {
        "algorithm": "fedsgd",
        "task": "classification",
        "optimiser": "averaging",
        "rate": 0.5,
        "measure": "accuracy",
        "measures": ["accuracy"],
        "accuracy": 0.8975,
        "accuracy_optimum": 0.9002,
        "accuracy_baseline": 0.7630,
        "accuracy_interval": [0.8942, 0.9008],
        "accuracy_optimum_interval": [0.8969, 0.9034],
        "reports": 990,
        "asked": 1000,
        "missing": 10,
        "refusals": 0,
        "bytes_per_report": 18,
        "bytes_per_request": 121,
        "bytes_per_report_float32": 129,
        "epsilon_paid": cards.decode(card).epsilon / 1e6,
        "epsilon_before": 0.0,
        "epsilon_spent": [],
        "guarantees": promised(),
        "rounds": rounds,
        "seconds": 12.5,
        "reports_per_second": 79.2,
        "stopped": "rounds",
        "mechanism": "three-outputs",
        "card": card.hex(),
        "card_hash": cards.card_hash(card).hex(),
        "levels": 3,
        "k": 1,
        "d": 28,
        "features": ["constant", "delay <&> 'weather'"],
        "weights": [-0.5, 1.25],
        "options": {
            "data": "flights",
            "model": "logistic",
            "epsilon": "2",
            "epsilons": None,
            "fleet": "emulated:8",
            "group": 200,
            "quorum": 1.0,
            "seed": 1,
        },
        "last_gradient": {
            "round": rounds,
            "confidence": 0.95,
            "mean": [0.1, None],
            "low": [-0.2, None],
            "high": [0.4, None],
            "reports": [11, 0],
        },
        "history": [
            {"round": i, "asked": 200, "reports": 198, "accuracy": 0.85 + i / 100}
            for i in range(rounds)
        ],
    } | changes


def render(**changes):
    return undrawn(training.page(result(**changes)))


def undrawn(page):
    """The source of a page without its pictures."""
    return report.render(replace(page, pictures={}))


class Page(HTMLParser):
    """The text of a page, its tags in order, and its links."""

    def __init__(self, source):
        super().__init__()
        words, self.tags, self.addresses, self.ids = [], [], [], []
        self.handle_data = words.append
        self.feed(source)
        self.text = " ".join(" ".join(words).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [
            value for name, value in attrs if name in ("src", "href", "srcset", "data")
        ]
        self.ids += [value for name, value in attrs if name == "id"]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return report.write(training.page(result()), tmp_path_factory.mktemp("run"))


PICTURES = {"accuracy", "bytes", "gradient", "card", "epsilon"}


def test_the_page_has_its_pictures_and_names_no_other_file(written):
    page = Page(written.read_text())
    assert page.tags.count("svg") == page.tags.count("figcaption") == len(PICTURES)
    assert not {"img", "image"} & set(page.tags)
    assert {address[0] for address in page.addresses} == {"#"}, "markers of pictures alone"
    assert len(set(page.ids)) == len(page.ids), "no picture uses a marker of another"
    assert "reported value" in page.text, "a text of a picture is text"


@pytest.mark.parametrize(
    "expected",
    [
        "This run protects a device with all of its records with epsilon 2, against everybody",
        "all runs so far together protect a device with all of its records with epsilon 4",
        "the model's accuracy is 89.75 %; without any privacy it would be 90.02 %, "
        "and always the majority 76.30 %",
        "missing 10 reports that were asked for",
    ],
    ids=["this run", "all runs", "accuracy", "missing"],
)
def test_the_page_shows_the_results_of_the_run(written, expected):
    assert expected in Page(written.read_text()).text


def test_the_page_shows_how_many_records_a_client_holds():
    assert "records 4,321" in Page(render(records=4321)).text


def test_the_page_says_what_lying_devices_can_do():
    moved = {"share": 0.01, "reports": 200, "length": 0.25, "relative": 0.5}
    text = Page(render(liars=moved)).text
    (line,) = training_lines(result(liars=moved))
    assert f"lying devices {line}" in text
    assert "lying devices" not in Page(render()).text, "it is not known"


def test_texts_are_escaped(written):
    source = written.read_text()
    assert "delay &lt;&amp;&gt; &#x27;weather&#x27;" in source
    assert "<&>" not in source


def test_a_client_whose_report_is_missing_has_spent_nothing():
    spent = report.spent(result(asked=1000, reports=990, epsilon_paid=2.0))
    clients_by_epsilon = {2.0: 990, 0.0: 10}
    assert spent == clients_by_epsilon


def test_what_boards_say_that_clients_have_spent_is_shown_as_it_is():
    said_by_boards = [[0.0, 3], [2.0, 997]]  # an epsilon, and the number of clients
    assert report.spent(result(epsilon_spent=said_by_boards)) == {0.0: 3, 2.0: 997}


def test_a_result_of_an_earlier_version_is_refused(tmp_path):
    old = result()
    old["options"]["dataset"] = old["options"].pop("data")
    (tmp_path / "result.json").write_text(json.dumps({"algorithm": "fedsgd", **old}))
    with pytest.raises(UsageError, match="an earlier version of tern"):
        load(tmp_path, tmp_path)
