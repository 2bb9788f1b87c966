"""What observers see of the gateways in a store."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from terngateway.tables import StoredAnswer, StoredGateway, read_answers, read_gateways
from ternhost.extensions import Cells, Gauges, Line, Query, Row, View
from ternhost.text import counted
from ternhost.watch import words
from ternhost.watch.summary import breakdown

_MOST_NAMES = 10  # of gateways in a line of the terminal
_NOT_ASKED = StoredAnswer(reports=0, answered=False)


@dataclass(frozen=True)
class GatewaysView(View):
    """The gateways that ever connected, and their answers in open rounds.

    gateways: in the order of their names. answers: by the number of an open round and by gateway.
    """

    gateways: Sequence[StoredGateway]
    answers: Mapping[int, Mapping[str, StoredAnswer]]

    @property
    def heard(self) -> float:
        """When any gateway was last heard, in seconds since 1970; 0 if none ever was."""
        return max((gateway.heard for gateway in self.gateways), default=0.0)

    def reports(self, number: int) -> int:
        """Return how many reports the gateways have counted so far in an open round."""
        answers = self.answers.get(number, {})
        return sum(answer.reports for answer in answers.values())

    def tile(self, when: str) -> Row | None:
        """Return a tile of the dashboard that says how many gateways are online; None without any.

        A tile has a name, a value and a note. when: a text after the name, if the value may be out of
        date.
        """
        if not self.gateways:
            return None
        online = f"{self._states()['online']:,}"
        return f"gateways online{when}", online, f"of {len(self.gateways):,}"

    def table(self, is_open: bool) -> Cells | None:
        """Return a table with a row for each gateway. is_open: a round is under way."""
        if not self.gateways:
            return None
        head = ("gateway", "state", "last heard", "devices", "round under way", "it says")
        return Cells(head, [self._row(gateway, is_open) for gateway in self.gateways])

    def _row(self, gateway: StoredGateway, is_open: bool) -> list[Any]:
        """Return the cells of a gateway's row in the table. is_open: a round is under way."""
        answer = self._answer(gateway.name)
        if not is_open:
            progress = ""
        elif answer.answered:
            progress = f"{counted(answer.reports, 'report')}, has answered"
        else:
            progress = f"{counted(answer.reports, 'report')} so far"

        state = "online" if gateway.online else "offline"
        said = [f"{name} {value}" for name, value in gateway.here.items()]  # about itself
        return [
            gateway.name,
            state,
            words.ago(gateway.heard),
            len(gateway.devices),
            progress,
            ", ".join(said),
        ]

    def gauges(self) -> list[Gauges]:
        """Return the metrics about gateways for Prometheus, most of which have a value for each."""
        devices = {}
        reports = {}
        answered = {}
        for gateway in self.gateways:
            answer = self._answer(gateway.name)
            devices[gateway.name] = len(gateway.devices)
            reports[gateway.name] = answer.reports
            answered[gateway.name] = int(answer.answered)

        # The arguments are the metric's name, its help text, its label, and its value by label.
        of_reports = "Reports that each gateway has counted in the current round"
        of_answers = "1 where a gateway has answered in the current round"
        return [
            Gauges("gateways", "Gateways by connection state", "state", self._states()),
            Gauges("gateway_devices", "Devices of each gateway", "gateway", devices),
            Gauges("gateway_reports", of_reports, "gateway", reports),
            Gauges("gateway_answered", of_answers, "gateway", answered),
        ]

    def lines(self) -> list[Line]:
        """Return the lines about gateways for the terminal.

        They are a line with numbers, and warnings about gateways that a round waits for or that are
        offline.
        """
        if not self.gateways:
            return []
        lines = [Line("Gateways", breakdown(self._counts()))]
        missing = {"waits for": self._waiting(), "offline": self._offline()}
        for heading, names in missing.items():
            if names:
                lines.append(Line(heading, _listed(names), warns=True))
        return lines

    def summary(self) -> dict[str, Any]:
        """Return the numbers of gateways, and the names of those that are missing, for JSON."""
        return {
            "gateways": self._counts() if self.gateways else {},
            "waiting": self._waiting(),
            "offline": self._offline(),
        }

    def _states(self) -> dict[str, int]:
        """Return the number of gateways that are online, and of those that are not."""
        online = sum(gateway.online for gateway in self.gateways)
        return {"online": online, "offline": len(self.gateways) - online}

    def _counts(self) -> dict[str, int]:
        """Return the numbers of gateways by state, and of those that have answered."""
        answered = sum(self._answer(gateway.name).answered for gateway in self.gateways)
        return {**self._states(), "answered": answered}

    def _answer(self, name: str) -> StoredAnswer:
        """Return what a gateway has answered in the newest open round."""
        return self._newest_answers().get(name, _NOT_ASKED)

    def _newest_answers(self) -> Mapping[str, StoredAnswer]:
        """Return the answers in the newest open round, by gateway; none without such a round."""
        if not self.answers:
            return {}
        newest_round = max(self.answers)
        return self.answers[newest_round]

    def _waiting(self) -> list[str]:
        """Return the names of the gateways that the newest open round waits for."""
        answers = self._newest_answers()
        names = []
        for gateway in self.gateways:
            was_asked = gateway.name in answers
            if was_asked and not answers[gateway.name].answered:
                names.append(gateway.name)
        return names

    def _offline(self) -> list[str]:
        """Return the names of the gateways that are not connected."""
        return [gateway.name for gateway in self.gateways if not gateway.online]


def read(query: Query | None, open_rounds: Sequence[int]) -> GatewaysView:
    """Return what observers see of the gateways in a store.

    query: reads rows of the store by an SQL statement; None if the store has no gateways.
    open_rounds: the numbers of the rounds under way.
    """
    if query is None:
        return GatewaysView(gateways=(), answers={})
    answers = {number: read_answers(query, number) for number in open_rounds}
    return GatewaysView(read_gateways(query), answers)


def _listed(names: Sequence[str]) -> str:
    """Return the names with commas between them; of more than _MOST_NAMES, the others' number."""
    text = ", ".join(names[:_MOST_NAMES])
    others = len(names) - _MOST_NAMES
    if others > 0:
        text += f", and {others:,} more"
    return text
