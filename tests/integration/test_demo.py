"""The demo: two jobs through emulated boards, with fewer devices and records than `tern demo` has."""

import json
from dataclasses import replace

import pytest

from ternhost import datasets, demo
from ternhost.demo import jobs, page, words
from ternhost.terminal import Progress

DEVICES = replace(
    jobs.DEVICES,
    options={**jobs.DEVICES.options, "fleet": "emulated:1", "reports": 40, "rounds": 2},
)
BOARDS = replace(jobs.BOARDS, options={**jobs.BOARDS.options, "fleet": "emulated:2", "records": 20})


@pytest.fixture(scope="module")
def lines():
    """What the demo prints as it goes on, once it has run."""
    return []


class Text:
    """A stream that is no terminal."""

    def __init__(self, lines):
        self.lines = lines

    def write(self, text):
        self.lines += text.splitlines()

    def flush(self):
        pass

    def isatty(self):
        return False


@pytest.fixture(scope="module")
def shown(tmp_path_factory, lines, micropython):
    """The demo after it has run, small."""
    with Progress(stream=Text(lines)) as progress:
        return demo.run(
            words.Printer(progress), tmp_path_factory.mktemp("runs"), jobs=(DEVICES, BOARDS)
        )


def test_every_round_of_both_jobs_is_judged(shown):
    devices, boards = shown.learned
    assert len(devices.curve) == devices.result["rounds"] == 2
    assert len(boards.curve) == boards.result["rounds"] > 2


def test_the_last_quality_is_that_of_the_runs_model(shown):
    for learned in shown.learned:
        assert learned.curve[-1].told_apart == pytest.approx(learned.result["auc"])


def test_the_devices_spend_what_the_demo_says(shown):
    """The ledgers of the emulated boards tell it, after the run."""
    devices, _ = shown.learned
    ((spent, clients),) = devices.result["epsilon_spent"]
    assert clients == 40
    assert devices.cost.epsilon == pytest.approx(spent, rel=1e-3)
    assert (devices.cost.delta, devices.cost.reports) == (0, 1)


def test_a_flight_of_the_boards_is_protected_at_epsilon_1_for_life(shown):
    _, boards = shown.learned
    assert 0.9 < boards.cost.epsilon <= 1
    assert boards.cost.delta == 1e-6
    assert 1.9 < boards.cost.epsilon_of_content < 2.2  # two steps: a flight out, another one in


def test_a_board_sends_its_report_once_a_round(shown):
    _, boards = shown.learned
    assert boards.cost.reports == boards.result["rounds"]
    assert boards.cost.bytes_sent == boards.cost.reports * boards.result["bytes_per_report"]


def test_the_facts_can_be_written_as_json(shown):
    facts = json.loads(json.dumps(shown.as_json()))
    assert facts["guessing"]["told_apart"] == 0.5
    assert facts["devices"]["cost"]["epsilon"] == pytest.approx(4, rel=1e-3)
    assert facts["boards"]["warned"] == shown.learned[1].curve[-1].warned


def test_the_page_has_the_picture_and_links_to_both_reports(shown):
    path = page.write_report(shown)
    html = path.read_text()
    assert html.count("<svg") == 1
    assert (path.parent / "curves.png").is_file()
    for learned in shown.learned:
        link = f"../{learned.result['run']}/report.html"
        assert link in html
        assert (path.parent / link).is_file()


def test_tables_and_bars_fit_into_40_columns(shown, lines):
    tables = words._rows(words.quality_table(shown)) + words._rows(words.cost_table(shown))
    bars = [line for line in lines if "#" in line]
    assert len(bars) > 4
    assert max(map(len, [*tables, *bars])) <= 40


@pytest.mark.parametrize("columns", [40, 80])
def test_paragraphs_fit_into_the_terminal(shown, columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    for line in words.summary(shown, "report.html"):
        is_path = line.startswith(("run: ", "report: "))
        assert is_path or len(line) <= columns, line


def test_every_terminal_can_show_what_the_demo_says(shown, lines):
    assert "\n".join([*lines, *words.summary(shown, "report.html")]).isascii()


def test_guessing_warns_of_as_many_late_flights_as_there_are():
    data = datasets.load(jobs.DATASET)
    quality = jobs.Quality.of_guessing(data)
    _, labels = data.judged
    assert quality.warned == pytest.approx((labels > 0).mean())


def test_the_time_of_a_sum_on_a_pico_is_that_of_the_demos_sum():
    """tests/figures.py measures it, of this case."""
    import figures

    of_sum = figures.OF_DEMO[jobs.BOARDS.pico_figure]
    assert of_sum.d == datasets.load(jobs.DATASET).dimension
    assert of_sum.records == jobs.BOARDS.options["records"]
