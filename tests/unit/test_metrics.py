"""Figures for Prometheus, which reads them at a port of this machine."""

import http.client
import time
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tern import wire
from ternhost.errors import USAGE
from ternhost.learn.distributions.quantile_options import Options
from ternhost.reach.broker.mosquitto import free_port
from ternhost.run.begin import Place
from ternhost.run.options import RunOptions
from ternhost.run.run import Run
from ternhost.run.status import ROUND, Status
from ternhost.store.boards import BoardRow
from ternhost.text import visible
from ternhost.watch.metrics import Metrics

STATUS = Status(ROUND, 1, None, 7, 10, 0, 0, None, 0.0)
CROSS_SITE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}


@pytest.fixture
def metrics():
    served = Metrics(0)
    yield served
    served.close()


def page_at(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        return response.read().decode()


def status_of(port, *headers, path="/metrics"):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest("GET", path, skip_host=True)
    for name, value in headers:
        connection.putheader(name, value)
    connection.endheaders()
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    assert (b"tern_round" in body) == (answer.status == 200)
    return answer.status


@pytest.mark.parametrize("host", ["evil.example:{port}", "127.0.0.1", "127.0.0.1:1"])
def test_a_page_of_another_host_reads_nothing_by_dns_rebinding(metrics, host):
    """A browser is told that evil.example has the address 127.0.0.1: its pages would be of the same
    origin as ours. Only the name in the request tells them apart.
    """
    for path in ("/metrics", "/"):
        host = host.format(port=metrics.port)
        assert status_of(metrics.port, ("Host", host), path=path) == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        (CROSS_SITE | {"Sec-Fetch-Mode": "no-cors"}, 403),
        (CROSS_SITE | {"Sec-Fetch-Mode": "navigate"}, 200),
    ],
    ids=["second host", "origin", "fetch", "link"],
)
def test_a_page_of_another_site_may_only_link_here(metrics, headers, status):
    here = ("Host", f"127.0.0.1:{metrics.port}")
    assert status_of(metrics.port, here, *headers.items()) == status


def scrape(served):
    """(name, sorted pairs of labels) -> value, as Prometheus reads them."""
    families = text_string_to_metric_families(page_at(served.port))
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, *sorted(sample.labels.items())): sample.value for sample in samples}


def test_every_reason_is_0_at_first_so_that_its_first_refusal_is_an_increase(metrics):
    metrics.update(STATUS)
    served = scrape(metrics)
    assert {served["tern_refused_reports_total", ("reason", name)] for name in wire.ERRORS} == {0}


def board(first, **fields):
    """A board of one client, which was heard just now."""
    return BoardRow(
        f"{first:08x}", first=first, clients=1, online=True, heard=time.time(), **fields
    )


def test_lying_boards_make_few_series(metrics, store):
    """A board says which release it runs, and with which error it failed. Prometheus keeps a series
    for each text, for ever: 199 boards that each send a long text of their own must not fill it.
    """
    lies = [board(i, hello={"release": f"{i}\n" + "x" * 500}, error=f"e{i}") for i in range(1, 200)]
    store.boards_seen(lies)
    metrics.add_store(store.path)

    served = scrape(metrics)

    for name in ("release", "error"):
        boards_by_label = {}  # how many boards each series of this name counts
        for (series, *labels), value in served.items():
            if series == f"tern_boards_by_{name}":
                ((_, label),) = labels
                boards_by_label[label] = value
        assert len(boards_by_label) <= 20 + 1, "twenty labels, and all others together"
        assert sum(boards_by_label.values()) == 199
        assert max(map(len, boards_by_label)) <= 60, "labels are cut"


HOSTILE = '</script><b>"}} 9\n# TYPE evil gauge\nevil 1\\{{ $value }}${x}\u202e\u200b\x1b[2J'


def test_hostile_texts_of_boards_are_labels_that_no_terminal_obeys(metrics, store):
    store.boards_seen([board(1, hello={"release": HOSTILE}, error=HOSTILE)])
    metrics.add_store(store.path)
    served = scrape(metrics)
    for name in ("release", "error"):
        assert served[f"tern_boards_by_{name}", (name, visible(HOSTILE)[:60])] == 1


def test_an_unreadable_store_is_reported(metrics, store, tmp_path):
    """The figures for Prometheus come from a store. When its file has gone, one figure says so, and
    the others stay as they were.
    """
    metrics.add_store(store.path)
    store.boards_seen([board(1)])
    assert scrape(metrics)["tern_store_readable",] == 1

    store.close()
    store.path.rename(tmp_path / "away")
    served = scrape(metrics)
    assert served["tern_store_readable",] == 0
    assert served["tern_boards_by_state", ("state", "online")] == 1


def test_a_run_serves_its_figures_until_its_process_ends(here, tern):
    """With --metrics, a run serves figures for Prometheus at a port: 600 reports, each of the
    epsilon 2. This process has run it, and so the port stays taken: a second run with it is
    refused.
    """
    port = str(free_port())
    fleet = ["--fleet", "simulated:600", "--data", "iris"]
    serve = ["serve", *fleet, "--rounds", "1", "--no-report", "--quiet", "--metrics", port]

    tern(*serve)

    figures = page_at(port)
    assert "tern_reports_accepted 600.0" in figures
    assert "tern_report_epsilon 2.0" in figures

    refused = tern(*serve, code=USAGE)
    assert f"port {port}" in refused.err


def test_quantiles_that_a_run_has_collected_are_served_with_their_intervals(metrics, here):
    options = RunOptions("quantiles", Options(data="iris", clients=60), "simulated:60")
    with Run.begin(options, Place("r", here)) as run:
        result = run.run()
    metrics.add_store(run.files.store)

    samples = scrape(metrics)

    for attribute in result["attributes"]:
        for quantile in attribute["quantiles"]:
            labels = {
                "attribute": attribute["name"],
                "quantile": f"{quantile['quantile']:g}",
                "unit": "",
            }
            names = ("tern_quantile", "tern_quantile_low", "tern_quantile_high")
            served = [samples[name, *sorted(labels.items())] for name in names]
            assert served == [quantile["value"], *quantile["interval"]]
