"""Prometheus accepts the alerts, and fires each of them on the figures that it is about.

promtool is from Debian's package of Prometheus, fetched into tern's cache.
"""

import subprocess

import brokers
import pytest
import yaml

from ternviews.grafana import extension

HOUR, DAY = 3600, 86_400
LONG = "+0x200"  # 200 minutes of the same figure
NOW = 200 * 60  # seconds; the clock of the test begins at 0


def series(name, values, labels=""):
    """A made-up series: one value a minute, in the notation of promtool."""
    inner = f'instance="host:9109", job="tern"{labels}'
    return {"series": f"{name}{{{inner}}}", "values": values}


# By the alert: series on which it must fire, and others, much like them, on which it must not.
CASES = {
    "TernGone": ([series("other", f"1{LONG}")], [series("tern_round", f"1{LONG}")]),
    "TernNoRounds": (
        [series("tern_last_round_ended_timestamp_seconds", f"{NOW - 3 * HOUR}{LONG}")],
        [series("tern_last_round_ended_timestamp_seconds", f"{NOW - HOUR}{LONG}")],
    ),
    "TernBrokerGone": (
        [series("tern_connected", f"0{LONG}")],
        [series("tern_connected", f"1{LONG}")],
    ),
    "TernBoardsOffline": (
        [
            series("tern_boards_by_state", f"2{LONG}", ', state="offline"'),
            series("tern_boards_by_state", f"8{LONG}", ', state="connected"'),
        ],
        [
            series("tern_boards_by_state", f"1{LONG}", ', state="offline"'),
            series("tern_boards_by_state", f"99{LONG}", ', state="connected"'),
        ],
    ),
    "TernBudgetNearlySpent": (
        [
            series("tern_budget_left_least_epsilon", f"5{LONG}"),
            series("tern_report_epsilon", f"1{LONG}"),
        ],
        [
            series("tern_budget_left_least_epsilon", f"11{LONG}"),
            series("tern_report_epsilon", f"1{LONG}"),
        ],
    ),
    "TernBudgetSpent": (
        [series("tern_refused_reports_total", "0+1x200", ', reason="budget"')],
        [series("tern_refused_reports_total", "0+1x200", ', reason="data"')],
    ),
    "TernRefusals": (
        [series("tern_refusals", f"3{LONG}"), series("tern_asked", f"10{LONG}")],
        [series("tern_refusals", f"1{LONG}"), series("tern_asked", f"10{LONG}")],
    ),
    "TernEntropyFailed": (
        [series("tern_boards_by_entropy", f"1{LONG}", ', state="failed"')],
        [series("tern_boards_by_entropy", f"1{LONG}", ', state="CTR_DRBG"')],
    ),
    "TernForgedFrames": (
        [series("tern_frames_total", "0+1x200", ', fate="forged"')],
        [series("tern_frames_total", "0+1x200", ', fate="accepted"')],
    ),
    "TernStoreUnreadable": (
        [series("tern_store_readable", f"0{LONG}")],
        [series("tern_store_readable", f"1{LONG}")],
    ),
    "TernOtherVersion": (
        [series("tern_strangers", f"1{LONG}")],
        [series("tern_strangers", f"0{LONG}")],
    ),
    "TernCertificateExpires": (
        [series("tern_certificate_expires_timestamp_seconds", f"{NOW + 29 * DAY}{LONG}")],
        [series("tern_certificate_expires_timestamp_seconds", f"{NOW + 31 * DAY}{LONG}")],
    ),
    "TernBackupOld": (
        [series("tern_last_backup_timestamp_seconds", f"{NOW - 9 * DAY}{LONG}")],
        [series("tern_last_backup_timestamp_seconds", f"{NOW - 7 * DAY}{LONG}")],
    ),
    "TernDiskNearlyFull": (
        [
            series("tern_disk_free_bytes", f"5{LONG}"),
            series("tern_disk_size_bytes", f"100{LONG}"),
        ],
        [
            series("tern_disk_free_bytes", f"15{LONG}"),
            series("tern_disk_size_bytes", f"100{LONG}"),
        ],
    ),
    "TernGatewayOffline": (
        [series("tern_gateways", f"1{LONG}", ', state="offline"')],
        [series("tern_gateways", f"1{LONG}", ', state="connected"')],
    ),
}


@pytest.fixture(scope="module")
def promtool():
    return brokers.fetched("promtool") / "promtool"


@pytest.fixture(scope="module")
def rules(tmp_path_factory):
    """The file that `tern watch --alerts` writes."""
    path = tmp_path_factory.mktemp("alerts") / "tern-alerts.yml"
    path.write_text(extension.alert_rules())
    return path


def alerts_in(path):
    (group,) = yaml.safe_load(path.read_text())["groups"]
    return [rule["alert"] for rule in group["rules"]]


def test_prometheus_accepts_the_alerts(promtool, rules):
    checked = subprocess.run(
        [promtool, "check", "rules", rules], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(alerts_in(rules))} rules found" in checked.stdout


def test_every_alert_has_a_case(rules):
    assert set(alerts_in(rules)) == set(CASES)


def fires(promtool, rules, alert, made_up):
    """Whether an alert fires on made-up series, by promtool, which is told to expect that it does
    not.
    """
    found = subprocess.run(
        [promtool, "test", "rules", _write_test(rules, alert, made_up)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = found.stdout + found.stderr
    assert "parse error" not in said
    is_as_expected = "SUCCESS" in said
    assert is_as_expected != ("exp:" in said), said
    return not is_as_expected


def _write_test(rules, alert, made_up):
    path = rules.with_name(f"{alert}.yml")
    expectation = {"eval_time": "200m", "alertname": alert, "exp_alerts": []}
    content = {
        "rule_files": [rules.name],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": made_up, "alert_rule_test": [expectation]}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires(promtool, rules, alert):
    made_up, _ = CASES[alert]
    assert fires(promtool, rules, alert, made_up)


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_does_not_fire_on_figures_that_are_well(promtool, rules, alert):
    _, made_up = CASES[alert]
    assert not fires(promtool, rules, alert, made_up)
