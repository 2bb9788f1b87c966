"""Protected inference over a fleet: every client classifies a record of its own and reports once,
under exact noise.

It reports either its class probabilities under Laplace noise, which show clusters and certainty, or
its label by randomised response, which is far more accurate for its epsilon. Clients that tern
fills hold the held-out records, so that their results can be compared with those without noise.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from ternhost.count import estimate
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Dataset, Holdings, held_out, load
from ternhost.errors import UsageError
from ternhost.learn import base, clustering
from ternhost.learn.classifiers import Classifier, LearnedBy, trained
from ternhost.learn.designs import SEED_HELP, ReportDesign, by_class
from ternhost.learn.noise import LABEL, PROBABILITY, NoiseOptions, to_classify, weakness
from ternhost.learn.parameters import Floats
from ternhost.options import require
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO
from ternhost.text import counted
from ternhost.vectorised import probabilities

_CLIENTS = 1000  # by default, as in MindSpore
_FIGURES = ("score", "score_without_noise", "agreement")


@dataclass(frozen=True)
class Options(NoiseOptions):
    dataset: str = to_classify(
        "iris",
        f"data set of the clients: {', '.join(clustering.CLASSES)}, or another with two classes",
        metavar="NAME",
    )
    held_out: float = to_classify(
        0.5,
        "share of the records that the clients get; the classifier is trained on the rest",
        metavar="SHARE",
    )
    classifier: str | None = to_classify(
        None,
        "directory of a finished run, whose model classifies; the clients get the records that its data set holds out",
        metavar="DIR",
        shown="one that is trained for this",
        instead_of=("held_out",),
    )
    score_rounds: int = to_classify(
        1,
        "with --classifier: number of the run's rounds whose models are scored, the last one among them; the clients "
        "report on each, and pay for each",
        metavar="N",
    )
    cluster_client_num: int = to_classify(
        0, "number of clients asked", shown="1000, or all if fewer", metavar="N"
    )
    eval_type: str = to_classify(
        clustering.SILHOUETTE_SCORE,
        "score that judges the clusters of vectors",
        choices=clustering.SCORES[:-1],
    )
    seed: int = to_classify(1, SEED_HELP, metavar="S")

    def __post_init__(self) -> None:
        super().__post_init__()
        require(0 < self.held_out < 1, "held_out", "above 0 and below 1", self.held_out)
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        count = self.cluster_client_num
        require(count == 0 or count >= 2, "cluster_client_num", "2 or more", count)
        require(
            self.eval_type in clustering.SCORES,
            "eval_type",
            " or ".join(clustering.SCORES),
            self.eval_type,
        )
        require(self.score_rounds >= 1, "score_rounds", "1 or more", self.score_rounds)
        if self.score_rounds > 1 and self.classifier is None:
            raise UsageError(
                "--score-rounds needs --classifier", "name the run whose rounds are scored"
            )
        if self.answer == LABEL and self.eval_type not in (
            clustering.NOT_EVAL,
            clustering.SILHOUETTE_SCORE,
        ):
            text = f"--eval-type {self.eval_type} is of vectors, and labels have no such score"
            raise UsageError(text, "leave it out, or name --answer vector")
        if self.score_rounds > 1 and (
            self.answer == LABEL or self.eval_type == clustering.NOT_EVAL
        ):
            text = "--score-rounds scores vectors, and there is no score with --answer label or --eval-type NOT_EVAL"
            raise UsageError(text, "leave out --score-rounds, or these")


class Infer(base.Learner):
    """One evaluation, or one of each model; a fleet that is served is evaluated over and over.

    The last one counts.
    """

    name = "infer"
    command = "infer"
    Options = Options
    individual = True
    modules = ("inference",)
    rounds_option = "score_rounds"

    def __init__(
        self, options: Any, population: base.Population, data: Dataset | None = None
    ) -> None:
        """data: instead of the data set that the options name; its held-out records are the
        clients'.
        """
        self.options = options
        base.require_everybody(population, "inference")
        if options.classifier is None:
            if data is None:
                named = clustering.load(options.dataset)
                data = named.divided(held_out(len(named.labels), options.held_out))
            self._classifiers = [trained(data)]
        else:
            run = LearnedBy.read(options.classifier)
            if data is None and population.knows_records:
                data = load(options.dataset, classes=run.classes > 1)
            if data is not None:
                run.require_for(data)
            self._classifiers = run.classifiers(options.score_rounds)
        self._label = options.answer == LABEL
        self._round = 0
        classes, features = self._classifier.mantissas.shape
        if classes * features > wire.MAX_VALUES:
            raise UsageError(
                f"{classes} classes of {features} features are more than the {wire.MAX_VALUES} parameters "
                "that a device takes",
                hint=f"one of: {', '.join(clustering.CLASSES)}",
            )
        self.clients = options.cluster_client_num or None
        if population.knows_records:
            assert data is not None
            order = np.random.default_rng(options.seed).permutation(data.test)
            there = population.clients or len(order)
            self.clients = self.clients or min(_CLIENTS, there)
            hint = f"ask for {there} or fewer, or hold out more records"
            population.require_enough(self.clients, there, " to be clustered", hint)
            self.holdings = Holdings(data.records(np.arange(len(data.labels))), order)
        schedule = population.schedule
        if schedule is not None and options.score_rounds > 1:
            raise UsageError(
                "a served fleet has one classifier", "leave out --score-rounds, or use tern infer"
            )
        self.rounds = schedule.rounds if schedule else len(self._classifiers)
        self.times = self.rounds or 1
        self.reports = (
            None if self.clients is None or self.rounds is None else self.clients * self.rounds
        )
        self._found: dict[str, Any] | None = None
        self._figures: dict[str, float] = {}  # of the last round
        self._computed: list[
            dict[str, float]
        ] = []  # figures of each model, where no device is asked
        self.designs = []
        if options.privacy_eval_type != clustering.NOT_ENCRYPT and options.unprotected is None:
            self.designs = [self._design(epsilon, share) for epsilon, share in options.classes()]
        elif not population.knows_records or population.clients is None or schedule is not None:
            options.classes()  # refuses noise that no board has
            text = (
                f"no device sends a result as {clustering.NOT_ENCRYPT}: what it sends is protected"
            )
            raise UsageError(text, "compare with the score without noise, or ask a simulated fleet")
        else:
            self._compute(np.arange(self.clients or 0))

    def _compute(self, clients: base.Devices) -> None:
        """Evaluate each model on results that no device would send: exact ones, or those with too
        little noise.
        """
        for i in range(len(self._classifiers)):
            results = self._exact(clients)
            if (setting := self.options.unprotected) is not None:
                rng = np.random.default_rng([self.options.seed, i])
                results = results + rng.laplace(0, 1 / setting, results.shape)
            means = results.mean(axis=0)
            if self._label:
                results = results.argmax(axis=1)
                means = np.bincount(results, minlength=len(means)) / len(results)
            self._found = self._evaluate(results, clients) | _shares(means)
            self._computed.append(self._of_model(self._found))
            self._round += 1

    @property
    def _classifier(self) -> Classifier:
        """That of the round under way."""
        return self._classifiers[min(self._round, len(self._classifiers) - 1)]

    def _design(self, epsilon: int, share: float) -> ReportDesign:
        if self._label:
            classes = len(self._classifier.mantissas)
            card = mechanisms.design("grr", levels=classes, epsilon_micro=epsilon).decode()
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
        mantissas, exponent = self._classifier.mantissas, self._classifier.exponent
        k = 1 if self._label else len(mantissas)
        parameters = mantissas.reshape(-1).tolist()
        return Question(
            wire.SOFTMAX, parameters, exponent, design.card.data, k, classes=len(mantissas)
        )

    def learn(self, result: RoundResult, devices: Sequence[int] | base.Devices) -> None:
        self._figures = {}
        if result.reports:
            self._take(result, devices)
        self._round += 1

    def _take(self, result: RoundResult, devices: Sequence[int] | base.Devices) -> None:
        answers = [
            (cohort.card, cohort.answers) for cohort in result.cohorts if cohort.answers is not None
        ]
        results = np.concatenate([self._read(card, answer.symbols) for card, answer in answers])
        reporters = np.concatenate([answer.devices for _, answer in answers])
        still = np.isin(
            reporters, np.asarray(devices)
        )  # one may have been revoked since it answered
        self._found = self._evaluate(results[still], base.clients_of(devices, reporters[still]))
        if self._label:
            labels = [(cohort.card, cohort.counts[0], None) for cohort in result.cohorts]
            shares = estimate.combine_frequencies(labels)
        else:  # the mean probability of each class
            shares = estimate.combine([(cohort.card, cohort.counts) for cohort in result.cohorts])
        self._found |= _shares(shares.mean, shares.low, shares.high)
        self._figures = self._of_model(self._found)

    def _of_model(self, found: Mapping[str, Any]) -> dict[str, float]:
        """The figures of an evaluation, and the loss of its model in its run, as far as they are
        known.
        """
        known = {name: found[name] for name in _FIGURES}
        if self.options.score_rounds > 1:
            known["loss"] = self._classifier.loss
        return {name: float(value) for name, value in known.items() if value is not None}

    def figures(self) -> dict[str, float]:
        return self._figures

    def _read(self, card: cards.Card, symbols: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return symbols[:, 0] if self._label else estimate.symbol_values(card)[symbols]

    def _exact(self, clients: base.Devices) -> Floats:
        assert self.holdings is not None
        rows = self.holdings.rows(clients)[:, 0, :-1]
        return probabilities(self._classifier.mantissas, self._classifier.exponent, rows) / ONE

    def _evaluate(self, results: npt.NDArray[Any], clients: base.Devices) -> dict[str, Any]:
        known = None if self.holdings is None else self._exact(clients)
        if self._label:
            return self.in_privacy() | clustering.labelled(results, known)
        return self.in_privacy() | clustering.cluster(self.options.eval_type, results, known)

    def in_privacy(self) -> dict[str, Any]:
        """The true epsilon beside MindSpore's setting, of the class that pays most, and the noise
        that a probability gets at most, with which probability.
        """
        half = max(
            (design.epsilon / MICRO / 2 for design in self.designs),
            default=self.options.unprotected,
        )
        true, often = (None if half is None else 2 * half), self.options.probability or PROBABILITY
        noise = {"privacy_eval_type": self.options.privacy_eval_type, "laplace_eval_eps": half}
        noise |= {"epsilon_true": true, "eval_type": self.options.eval_type}
        if half is not None and not self._label:
            noise |= {"noise": -math.log1p(-often) / half, "probability": often}
        return noise

    def state(self) -> dict[str, Any]:
        return {"round": self._round, "found": self._found}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round, self._found = int(state["round"]), state["found"]

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        classes, features = self._classifier.mantissas.shape
        found = self._found or {
            "clients": 0,
            "clusters": {},
            "shares": {},
            "score": None,
            "agreement": None,
        }
        result = {"dataset": self.options.dataset, "classes": classes, "features": features}
        result |= {"answer": self.options.answer, **found, "scores": self._scores(history)}
        if self.designs:
            result["budgets"] = [each.summary(self.times) for each in self.designs]
            result |= base.report_summary(self.designs[0], self._question(self.designs[0]))
        return result

    def _scores(self, history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The figures of each model of a run, by its round there; of a single model by the rounds
        of this run.
        """
        of_models = self.options.score_rounds > 1
        rows: Sequence[Mapping[str, Any]] = self._computed or history
        rounds = (
            [each.round for each in self._classifiers]
            if of_models
            else [row.get("round") for row in rows]
        )
        names = (*_FIGURES, "loss")
        pairs = zip(rounds, rows, strict=False)  # a run that was stopped has fewer rows
        return [
            {"round": number, **{name: row.get(name) for name in names}} for number, row in pairs
        ]

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        lines = [_score(result)]
        if len(scores := [row for row in result.get("scores", ()) if row["score"] is not None]) > 1:
            first, last = scores[0], scores[-1]
            words = f"score {first['score']:.4f} to {last['score']:.4f}"
            if None not in (first["loss"], last["loss"]):
                words += f", log-loss {first['loss']:.4f} to {last['loss']:.4f}"
            lines.append(f"{words}, from round {first['round']} to round {last['round']}")
        if result.get("epsilon_paid") is None and result.get("epsilon_true") is not None:
            bound = (
                f"noise of at most {result['noise']:.3g} with probability {result['probability']:g}"
            )
            option = f"--laplace-eval-eps {result['laplace_eval_eps']:.10g}"
            lines.append(f"{bound} {weakness(result['epsilon_true'])} ({option})")
        elif result.get("epsilon_true") is not None:
            reports = (
                f"{counted(result['reports'], 'report')} of {result['bytes_per_report']} bytes"
            )
            option = (
                "" if _labels(result) else f" (--laplace-eval-eps {result['laplace_eval_eps']:g})"
            )
            lines.append(f"{reports} in {result['seconds']:.1f} s{option}")
        sizes = ", ".join(f"{label}: {size}" for label, size in result["clusters"].items())
        group, value = ("label", "share") if _labels(result) else ("cluster", "mean probability")
        shares = ", ".join(
            f"{i}: {_interval(share)}" for i, share in result.get("shares", {}).items()
        )
        lines.append(f"clients by {group}: {sizes or 'none'}")
        return [*lines, f"{value} of each class: {shares or 'none'}"]


def _shares(*interval: Floats) -> dict[str, Any]:
    """The share of each class with its interval, or alone where it is exact."""
    names = ("share", "low", "high")
    rows = zip(*interval, strict=True)
    return {
        "shares": {
            str(i): dict(zip(names, map(float, row), strict=False)) for i, row in enumerate(rows)
        }
    }


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
    return f"{share['share']:.3f}" + (
        f" +- {share['high'] - share['share']:.3f}" if "high" in share else ""
    )
