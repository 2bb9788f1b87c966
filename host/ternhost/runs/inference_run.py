"""One evaluation of protected inference over a fleet: every client classifies a record of its own and reports once.

The host trains the classifier on training records; emulated and simulated clients hold the held-out ones, so that their
results can be compared with those without noise. What boards on ports hold, the host does not know.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tern import card as cards
from tern import frames, wire
from tern.fixed import ONE
from ternhost.runs import asking
from ternhost.aggregate import batches, estimate
from ternhost import fleet
from ternhost.algorithms import inference
from ternhost.aggregate.aggregator import Question, report_bytes, request_bytes
from ternhost.runs.asking import Asking, Terms
from ternhost.datasets import held_out
from ternhost.errors import UsageError
from ternhost.fleet.provision import Policy, epsilon_spent
from ternhost.algorithms.inference import Evaluation, Settings, Weights
from ternhost.mechanisms.base import MICRO
from ternhost.runs.directory import board_directories
from ternhost.runs.session import Watcher, provision_fleet
from ternhost.aggregate.store import Store

_COMMAND = "infer"
_CLIENTS = 1000  # by default, as in MindSpore


@dataclass(frozen=True)
class Options:
    """What was asked for. `epsilon` is the true one and replaces `laplace_eval_eps`, which is MindSpore's; so do the
    names of `Settings`. cluster_client_num 0: 1000, or all clients where they are fewer.
    """

    dataset: str = "iris"
    epsilon: str | None = None
    privacy_eval_type: str = inference.LAPLACE
    laplace_eval_eps: str = "1"
    cluster_client_num: int = 0
    eval_type: str = inference.SILHOUETTE_SCORE
    fleet: str = "emulated:2"
    held_out: float = 0.5
    seed: int = 1
    deadline: float | None = 120.0
    quorum: float = 1.0
    first_round: int | None = None

    def __post_init__(self) -> None:
        spec = fleet.parse(self.fleet)
        if not 0 < self.held_out < 1:
            raise UsageError(
                f"a held-out share of {self.held_out} cannot be", hint="give more than 0, less than 1"
            )
        if not 0 < self.quorum <= 1 or (self.deadline is not None and not 0 < self.deadline <= 0xFFFF):
            raise UsageError("a quorum is a share above 0, a deadline 1 to 65535 s")
        if self.seed < 0 or (self.first_round is not None and not 1 <= self.first_round <= wire.MAX_ROUND):
            raise UsageError("a seed is 0 or more, the number of a round 1 or more")
        settings = self.settings(2)
        if settings.epsilon is None and spec.kind != "simulated":
            raise UsageError(
                f"no device sends a result as {inference.NOT_ENCRYPT}: what it sends is protected",
                hint="compare with the score without noise, or ask a simulated fleet",
            )

    def settings(self, clients: int) -> Settings:
        """The settings for a fleet of so many clients. Raises UsageError where it has fewer than asked for."""
        count = self.cluster_client_num or min(_CLIENTS, clients)
        given = Settings(self.privacy_eval_type, self.laplace_eval_eps, count, self.eval_type)
        if self.epsilon is not None and given.epsilon is not None:
            given = replace(
                Settings.with_epsilon(self.epsilon), eval_type=self.eval_type, cluster_client_num=count
            )
        return given


def begin(
    options: Options, path: str | Path, watcher: Watcher | None = None, anew: bool = False
) -> dict[str, Any]:
    """Evaluate, with the store at `path`; returns the result, also written to result.json.

    anew: give up a run of the store that has not finished. Raises TernError.
    """
    return asking.begin(_COMMAND, _Run, options, path, watcher, anew)


def resume(path: str | Path, watcher: Watcher | None = None, ports: str | None = None) -> dict[str, Any]:
    """Take up the evaluation whose store is at `path` (or in that directory).

    ports: its fleet, if the boards are at other ports by now. Raises TernError.
    """
    return asking.resume(_COMMAND, _Run, Options, path, watcher, ports)


class _Run:
    def __init__(self, options: Options, directory: Path, watcher: Watcher) -> None:
        self.options = options
        self.spec = fleet.parse(options.fleet)
        self._directory = directory
        self._watcher = watcher
        self._started = time.monotonic()
        whole = inference.load(options.dataset)
        self._dataset = replace(whole, held_out=held_out(len(whole.labels), options.held_out))
        self._weights = inference.train_classifier(self._dataset)
        _check_size(self._weights)
        positions = np.random.default_rng(options.seed).permutation(self._dataset.test)
        there = self.spec.count if self.spec.kind == "simulated" else len(positions)
        self._settings = options.settings(there)
        count = self._settings.cluster_client_num
        if self.spec.kind != "port" and count > there:
            raise UsageError(
                f"{count} clients are to be clustered, and there are {there}",
                hint=f"ask for {there} or fewer, or hold out more records",
            )
        self._positions = np.resize(positions, count) if count > len(positions) else positions[:count]
        if (
            self.spec.kind != "port"
            and self.spec.kind != "simulated"
            and self.spec.count > len(self._positions)
        ):
            raise UsageError(
                f"{self.spec.count} boards for {len(self._positions)} clients leave boards without one",
                hint="ask for fewer boards",
            )

    @property
    def _boards(self) -> list[Path]:
        return board_directories(self._directory, self.spec.count)

    def provision(self, store: Store) -> None:
        epsilon = self._settings.epsilon
        assert epsilon is not None
        clients = len(self._positions)
        self._watcher.note(f"provisioning {clients} clients on {self.spec.count} emulated boards")
        provision_fleet(store, self._boards, self._dataset.records(self._positions), Policy(epsilon, epsilon))

    def simulate(self) -> tuple[Evaluation, dict[str, Any]]:
        found = inference.evaluate(
            self._settings,
            self._weights.mantissas,
            self._weights.exponent,
            self._dataset.features[self._positions],
            self.options.seed,
        )
        return found, {"asked": found.clients, "epsilon_spent": []}

    def ask(self, asking: Asking) -> tuple[Evaluation, dict[str, Any]]:
        options = self.options
        # of boards that somebody else filled, all that there are, unless a number was named
        asked = (
            self._settings.cluster_client_num if options.cluster_client_num or self.spec.is_emulated else None
        )
        terms = Terms(options.quorum, options.deadline, options.first_round)
        (answer,) = asking.ask(
            self.spec,
            self._boards,
            ("inference",),
            [self._question],
            asked,
            terms,
            self._settings.account(),
            keep_counts=False,
        )
        vectors, devices = self._vectors(asking.store, answer.number)
        known = None
        if self.spec.is_emulated:  # device i holds the record at i - 1
            rows = self._dataset.features[self._positions[devices - 1]]
            known = inference.probabilities(self._weights.mantissas, self._weights.exponent, rows) / ONE
        return inference.cluster(self._settings, vectors, known), {
            "asked": answer.asked,
            "refusals": answer.refusals,
            "ended": answer.ended,
            "epsilon_spent": epsilon_spent(self._boards) if self.spec.is_emulated else [],
        }

    @property
    def _card(self) -> cards.Card:
        assert self._settings.epsilon is not None
        card: cards.Card = cards.decode(inference.noise_card(self._settings.epsilon))
        return card

    @property
    def _question(self) -> Question:
        mantissas = self._weights.mantissas
        return Question(
            wire.SOFTMAX,
            mantissas.reshape(-1).tolist(),
            self._weights.exponent,
            self._card.data,
            len(mantissas),
        )

    def _vectors(self, store: Store, number: int) -> tuple[inference.Floats, Any]:
        reports = store.reports(number)
        card = self._card
        symbols, _ = batches.unpack(
            [payload for _, payload in reports], len(self._weights.mantissas), card.symbols
        )
        return estimate.symbol_values(card)[symbols], np.array([device for device, _ in reports], np.int64)

    def conclude(self, answers: tuple[Evaluation, dict[str, Any]]) -> dict[str, Any]:
        found, told = answers
        classes, features = self._weights.mantissas.shape
        result = {
            "dataset": self.options.dataset,
            "classes": classes,
            "features": features,
            **found.summary(),
            "reports": found.clients,
            **told,
            "seconds": round(time.monotonic() - self._started, 3),
            "options": asdict(self.options),
            "directory": str(self._directory),
        }
        if self._settings.epsilon is not None:
            card = self._card
            result |= {
                "epsilon_per_client": card.epsilon / MICRO,
                "card": card.data.hex(),
                "card_hash": cards.card_hash(card.data).hex(),
                "bytes_per_report": report_bytes(frames.packed_size(card.symbols, classes)),
                "bytes_per_request": request_bytes(self._question),
            }
        return result


def _check_size(weights: Weights) -> None:
    if weights.mantissas.size > wire.MAX_PARAMETERS:
        classes, features = weights.mantissas.shape
        raise UsageError(
            f"{classes} classes of {features} features are more than the {wire.MAX_PARAMETERS} parameters that a "
            "device takes",
            hint=f"one of: {', '.join(inference.CLASSES)}",
        )
