"""An extension: runs have an option --purpose, which the store keeps, and which results show."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ternhost.extensions import Extension, Row, Tables
from ternhost.options import option
from ternhost.run.run import Run


@dataclass(frozen=True)
class PurposeOptions:
    purpose: str | None = option(None, "what the run is for", metavar="TEXT")


class Purpose(Extension):
    name = "purpose"
    package = "purpose"
    Options = PurposeOptions
    tables = Tables(version=1, sql="CREATE TABLE purpose (run TEXT PRIMARY KEY, text TEXT);\n")

    def before_first_round(self, run: Run, driver: Any) -> list[str]:
        purpose = self._purpose(run)
        if purpose is None:
            return []
        run.store.add_tables(self)
        run.store.write("INSERT INTO purpose VALUES (?, ?)", run.files.name, purpose)
        return [f"this run is for {purpose}"]

    def result(self, run: Run) -> Mapping[str, Any]:
        return {"purpose": self._purpose(run)}

    def rows(self, result: Mapping[str, Any]) -> list[Row]:
        return [("purpose", str(result["purpose"]), "as the owner of the run put it")]

    def _purpose(self, run: Run) -> str | None:
        own = run.options.extensions.get(self.name, PurposeOptions())
        return own.purpose


PURPOSE = Purpose()
