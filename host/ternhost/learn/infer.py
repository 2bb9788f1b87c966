"""Protected inference over a fleet: every client classifies a record of its own and reports once, under exact noise.

It reports either its class probabilities under Laplace noise, which show clusters and certainty, or its label by
randomised response, which is far more accurate for its epsilon. Clients that tern fills hold the held-out records, so
that their results can be compared with those without noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import wire
from tern.fixed import MAX_EPSILON, ONE
from ternhost.count import estimate
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Dataset, Holdings, held_out
from ternhost.errors import UsageError
from ternhost.learn import base, clustering, designs
from ternhost.learn.designs import ReportDesign, by_class, epsilons_option, in_privacy, shares, spent
from ternhost.learn.parameters import Floats
from ternhost.options import option, require
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO, parse_epsilon
from ternhost.text import counted
from ternhost.vectorised import probabilities

LABEL = "label"
VECTOR = "vector"

_what = partial(option, group="what to classify")
_CLIENTS = 1000  # by default, as in MindSpore
_NOISES = (clustering.NOT_ENCRYPT, clustering.LAPLACE)


@dataclass(frozen=True)
class Options:
    """Options of protected inference. The true `epsilon` replaces MindSpore's `laplace_eval_eps`."""

    dataset: str = _what(
        "iris",
        f"data set of the clients: {', '.join(clustering.CLASSES)}, or another with two classes",
        metavar="NAME",
    )
    held_out: float = _what(
        0.5,
        "share of the records that the clients get; the classifier is trained on the rest",
        metavar="SHARE",
    )
    answer: str = _what(
        VECTOR,
        "what a client reports: its class by randomised response, or all class probabilities with Laplace noise",
        choices=(LABEL, VECTOR),
    )
    cluster_client_num: int = _what(0, "number of clients asked", shown="1000, or all if fewer", metavar="N")
    eval_type: str = _what(
        clustering.SILHOUETTE_SCORE,
        "score that judges the clusters of vectors",
        choices=(clustering.NOT_EVAL, clustering.SILHOUETTE_SCORE, clustering.CALINSKI_HARABASZ),
    )
    seed: int = _what(1, "seed that assigns records to clients", metavar="S")
    epsilon: str | None = in_privacy(
        None, designs.EPSILON_HELP, metavar="E", shown="2", instead_of=("laplace_eval_eps",)
    )
    epsilons: str | None = epsilons_option("epsilon", "laplace_eval_eps")
    laplace_eval_eps: str = in_privacy(
        "1", "epsilon as MindSpore counts it: half of the true epsilon", metavar="X"
    )
    privacy_eval_type: str = in_privacy(
        clustering.LAPLACE,
        "noise: LAPLACE, or NOT_ENCRYPT for none, on simulated fleets only",
        choices=_NOISES,
    )

    def __post_init__(self) -> None:
        require(0 < self.held_out < 1, "held_out", "above 0 and below 1", self.held_out)
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        count = self.cluster_client_num
        require(count == 0 or count >= 2, "cluster_client_num", "2 or more", count)
        for name, values in (("privacy_eval_type", _NOISES), ("eval_type", clustering.SCORES)):
            require(getattr(self, name) in values, name, " or ".join(values), getattr(self, name))
        if self.answer == LABEL and self.eval_type == clustering.CALINSKI_HARABASZ:
            text = f"--eval-type {self.eval_type} is of vectors, and labels have no such score"
            raise UsageError(text, "leave it out, or name --answer vector")
        named = [name for name in ("epsilon", "epsilons") if getattr(self, name) is not None]
        if self.privacy_eval_type == clustering.NOT_ENCRYPT and named:
            raise UsageError(
                f"--{named[0]} says how much noise there is, and {clustering.NOT_ENCRYPT} that there is none",
                hint="give one of them",
            )
        if self.privacy_eval_type == clustering.LAPLACE:
            self.classes()  # an epsilon that makes no sense is refused here

    def classes(self) -> list[tuple[int, float]]:
        """(true epsilon of a result in micro-epsilon, share) of each class of clients. Raises UsageError.

        MindSpore's noise of scale 1 / laplace_eval_eps assumes an L1 change of 1. It can be 2: epsilon doubles."""
        if self.epsilons is not None:
            return [(parse_epsilon(epsilon), share) for epsilon, share in shares(self.epsilons)]
        if self.epsilon is not None:
            return [(parse_epsilon(self.epsilon), 1.0)]
        try:
            return [(parse_epsilon(str(2 * Decimal(self.laplace_eval_eps))), 1.0)]
        except (ArithmeticError, UsageError):
            raise UsageError(
                f"--laplace-eval-eps {self.laplace_eval_eps} must be a number above 0 and at most "
                f"{MAX_EPSILON // MICRO // 2}, half of the true epsilon",
                hint=f"to compare without noise, give --privacy-eval-type {clustering.NOT_ENCRYPT}",
            ) from None


class Infer(base.Learner):
    """One evaluation; a fleet that is served is evaluated over and over, and the last one counts."""

    name = "infer"
    command = "infer"
    Options = Options
    individual = True
    modules = ("inference",)

    def __init__(self, options: Any, population: base.Population, data: Dataset | None = None) -> None:
        """data: instead of the data set that the options name; its held-out records are the clients'."""
        self.options = options
        base.require_everybody(population, "inference")
        if data is None:
            named = clustering.load(options.dataset)
            data = named.divided(held_out(len(named.labels), options.held_out))
        self._dataset = data
        self._mantissas, self._exponent = clustering.train_classifier(data)
        self._label = options.answer == LABEL
        classes, features = self._mantissas.shape
        if classes * features > wire.MAX_VALUES:
            raise UsageError(
                f"{classes} classes of {features} features are more than the {wire.MAX_VALUES} parameters "
                "that a device takes",
                hint=f"one of: {', '.join(clustering.CLASSES)}",
            )
        order = np.random.default_rng(options.seed).permutation(self._dataset.test)
        there = population.clients or len(order)
        self.clients = options.cluster_client_num or None
        if population.knows_records:
            self.clients = self.clients or min(_CLIENTS, there)
            hint = f"ask for {there} or fewer, or hold out more records"
            population.require_enough(self.clients, there, " to be clustered", hint)
            self.holdings = Holdings(data.records(np.arange(len(data.labels))), order)
        self.designs = []
        if options.privacy_eval_type != clustering.NOT_ENCRYPT:
            self.designs = [self._design(epsilon, share) for epsilon, share in options.classes()]
        elif not population.knows_records or population.clients is None:
            text = f"no device sends a result as {clustering.NOT_ENCRYPT}: what it sends is protected"
            raise UsageError(text, "compare with the score without noise, or ask a simulated fleet")
        self.rounds = population.schedule.rounds if population.schedule else 1
        self.times = self.rounds or 1
        self.reports = None if self.clients is None or self.rounds is None else self.clients * self.rounds
        self._round = 0
        self._found: dict[str, Any] | None = None
        if not self.designs and self.clients is not None and self.rounds is not None:
            everyone = np.arange(self.clients)  # without noise there is nothing to ask
            exact = self._exact(everyone)
            labels = exact.argmax(axis=1)
            sums = np.bincount(labels, minlength=exact.shape[1]) if self._label else exact.sum(axis=0)
            found = self._evaluate(labels if self._label else exact, everyone)
            self._round, self._found = self.rounds, found | _shares(sums / len(exact))

    def _design(self, epsilon: int, share: float) -> ReportDesign:
        if self._label:
            card = mechanisms.design("grr", levels=len(self._mantissas), epsilon_micro=epsilon).decode()
            return ReportDesign(card, 1, 0.0, "grr", epsilon, share, what="label")
        card = cards.decode(clustering.noise_card(epsilon))
        return ReportDesign(card, 1, 0.0, "laplace", epsilon, share, what="vector of probabilities")

    @property
    def done(self) -> bool:
        return self.rounds is not None and self._round >= self.rounds

    def cohorts(self, devices: Sequence[int] | base.Devices) -> list[base.Cohort]:
        parts = by_class(self.designs, devices[: self.clients], self.options.seed)
        return [(self._question(design), members) for _, design, members in parts]

    def _question(self, design: ReportDesign) -> Question:
        mantissas, classes = self._mantissas.reshape(-1).tolist(), len(self._mantissas)
        k = 1 if self._label else classes
        return Question(wire.SOFTMAX, mantissas, self._exponent, design.card.data, k, classes=classes)

    def learn(self, result: RoundResult, devices: Sequence[int] | base.Devices) -> None:
        self._round += 1
        if not result.reports:
            return
        answers = [(cohort.card, cohort.answers) for cohort in result.cohorts if cohort.answers is not None]
        results = np.concatenate([self._read(card, answer.symbols) for card, answer in answers])
        reporters = np.concatenate([answer.devices for _, answer in answers])
        still = np.isin(reporters, np.asarray(devices))  # one may have been revoked since it answered
        self._found = self._evaluate(results[still], base.clients_of(devices, reporters[still]))
        if self._label:
            labels = [(cohort.card, cohort.counts[0], None) for cohort in result.cohorts]
            shares = estimate.combine_frequencies(labels)
        else:  # the mean probability of each class
            shares = estimate.combine([(cohort.card, cohort.counts) for cohort in result.cohorts])
        self._found |= _shares(shares.mean, shares.low, shares.high)

    def _read(self, card: cards.Card, symbols: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return symbols[:, 0] if self._label else estimate.symbol_values(card)[symbols]

    def _exact(self, clients: base.Devices) -> Floats:
        assert self.holdings is not None
        rows = self.holdings.rows(clients)[:, 0, :-1]
        return probabilities(self._mantissas, self._exponent, rows) / ONE

    def _evaluate(self, results: npt.NDArray[Any], clients: base.Devices) -> dict[str, Any]:
        known = None if self.holdings is None else self._exact(clients)
        if self._label:
            return self.in_privacy() | clustering.labelled(results, known)
        return self.in_privacy() | clustering.cluster(self.options.eval_type, results, known)

    def in_privacy(self) -> dict[str, Any]:
        """The true epsilon beside MindSpore's setting, of the class that pays most."""
        epsilon = max((design.epsilon / MICRO for design in self.designs), default=None)
        half = None if epsilon is None else epsilon / 2
        noise = {"privacy_eval_type": self.options.privacy_eval_type, "laplace_eval_eps": half}
        return {**noise, "epsilon_true": epsilon, "eval_type": self.options.eval_type}

    def state(self) -> dict[str, Any]:
        return {"round": self._round, "found": self._found}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round, self._found = int(state["round"]), state["found"]

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        classes, features = self._mantissas.shape
        found = self._found or {"clients": 0, "clusters": {}, "shares": {}, "score": None, "agreement": None}
        result = {"dataset": self.options.dataset, "classes": classes, "features": features}
        result |= {"answer": self.options.answer, **found}
        if self.designs:
            result["budgets"] = [each.summary(self.times) for each in self.designs]
            result |= base.report_summary(self.designs[0], self._question(self.designs[0]))
        return result

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        lines = [_score(result)]
        if result.get("epsilon_true") is not None:
            reports = f"{counted(result['reports'], 'report')} of {result['bytes_per_report']} bytes"
            option = "" if _labels(result) else f" (--laplace-eval-eps {result['laplace_eval_eps']:g})"
            lines.append(f"{reports} in {result['seconds']:.1f} s; {spent(result)}{option}")
        sizes = ", ".join(f"{label}: {size}" for label, size in result["clusters"].items())
        group, value = ("label", "share") if _labels(result) else ("cluster", "mean probability")
        shares = ", ".join(f"{i}: {_interval(share)}" for i, share in result.get("shares", {}).items())
        lines.append(f"clients by {group}: {sizes or 'none'}")
        return [*lines, f"{value} of each class: {shares or 'none'}"]


def _shares(*interval: Floats) -> dict[str, Any]:
    """The share of each class with its interval, or alone where it is exact."""
    names = ("share", "low", "high")
    rows = zip(*interval, strict=True)
    return {"shares": {str(i): dict(zip(names, map(float, row), strict=False)) for i, row in enumerate(rows)}}


def _score(result: Mapping[str, Any]) -> str:
    def figure(value: float | None) -> str:
        return "none (a single cluster has no score)" if value is None else f"{value:.4f}"

    known, parts = result["agreement"] is not None, []
    if not _labels(result) and result.get("eval_type") not in (None, clustering.NOT_EVAL):
        exact = f"   (without noise {figure(result['score_without_noise'])})" if known else ""
        parts.append(f"{result['eval_type']} {figure(result['score'])}{exact}")
    if known:
        kept = "label" if _labels(result) else "cluster"
        parts.append(f"{100 * result['agreement']:.1f} % of the clients keep their {kept}")
    return "; ".join(parts) or "not scored"


def _labels(result: Mapping[str, Any]) -> bool:
    return result.get("answer") == LABEL


def _interval(share: Mapping[str, float]) -> str:
    return f"{share['share']:.3f}" + (f" +- {share['high'] - share['share']:.3f}" if "high" in share else "")
