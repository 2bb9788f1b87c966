"""What gateways add to a dashboard of Grafana and to alerts of Prometheus, as `tern.monitoring`."""

import json
from importlib.resources import files
from typing import Any


def panels() -> list[dict[str, Any]]:
    """Return the panels about gateways, with ids and places of their own."""
    panels_about_gateways: list[dict[str, Any]] = json.loads(_resource("grafana.json"))
    return panels_about_gateways


def alert_rules() -> str:
    """Return the alert rules about gateways, indented as rules of a group."""
    return _resource("alerts.yml")


def _resource(name: str) -> str:
    """Return the text of a file of this package."""
    return (files("terngateway") / name).read_text()
