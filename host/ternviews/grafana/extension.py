"""`tern watch --grafana FILE` and `--alerts FILE`, which write a dashboard and alert rules.

Other packages add panels and rules for their own metrics. Each registers a module with the functions
`panels` and `alert_rules` as an entry point of `tern.monitoring` (docs/guides/extend.md).
"""

import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, Protocol

from ternhost.extensions import Export, Extension
from ternhost.registry import Registry


class Monitoring(Protocol):
    """What a package adds to the dashboard and to the alerts."""

    def panels(self) -> list[dict[str, Any]]:
        """Return panels of Grafana, with ids and places that no other panel has."""

    def alert_rules(self) -> str:
        """Return rules for Prometheus, indented as those in alerts.yml."""


MONITORING: Registry[Monitoring] = Registry("part of the dashboard", "tern.monitoring", {})


def dashboard() -> str:
    """Return the dashboard for Grafana, as JSON, with the panels of other packages."""
    whole = json.loads(resource("dashboard.json"))
    for part in MONITORING.available():
        whole["panels"] += part.panels()
    whole["panels"].sort(key=lambda panel: panel["id"])
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def alert_rules() -> str:
    """Return the alerts for Prometheus, as YAML, with the rules of other packages."""
    rules = resource("alerts.yml")
    for part in MONITORING.available():
        rules += part.alert_rules()
    return rules


def resource(name: str) -> str:
    """Return the text of a file beside this module."""
    return (files("ternviews.grafana") / name).read_text()


class GrafanaExtension(Extension):
    """The two files that `tern watch` writes on request."""

    name = "grafana"
    package = "ternviews"

    @property
    def exports(self) -> Sequence[Export]:
        return (
            Export(
                name="grafana",
                about="write a Grafana dashboard for 'tern serve --metrics', and exit",
                example="tern.json",
                text=dashboard,
            ),
            Export(
                name="alerts",
                about="write Prometheus alert rules for these metrics, and exit",
                example="tern-alerts.yml",
                text=alert_rules,
            ),
        )


GRAFANA = GrafanaExtension()
