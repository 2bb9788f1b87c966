"""Protected inference: every client classifies a record of its own and reports once, under exact
noise.

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
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Dataset, Holdings, held_out, load
from ternhost.errors import UsageError
from ternhost.learn import clustering, estimate
from ternhost.learn.base import (
    Cohort,
    Learner,
    Population,
    report_summary,
    require_clients,
    require_everybody,
)
from ternhost.learn.classifiers import Classifier, LearnedBy, trained
from ternhost.learn.designs import SEED_HELP, DeviceClass, ReportDesign, by_class
from ternhost.learn.devices import Devices, clients_of
from ternhost.learn.noise import LABEL, PROBABILITY, NoiseOptions, to_classify, weakness
from ternhost.learn.parameters import Floats
from ternhost.options import require
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO
from ternhost.text import counted
from ternhost.vectorised import probabilities

_CLIENTS = 1000  # by default, as in MindSpore
_FIGURES = ("score", "score_without_noise", "agreement")
_NOTHING_YET = {
    "clients": 0,
    "clusters": {},
    "shares": {},
    "score": None,
    "agreement": None,
}


@dataclass(frozen=True)
class Options(NoiseOptions):
    """Options of protected inference."""

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

    def check(self) -> None:
        """Raise UsageError for options out of bounds, or that contradict each other."""
        require(0 < self.held_out < 1, "held_out", "above 0 and below 1", self.held_out)
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        clients = self.cluster_client_num
        require(clients == 0 or clients >= 2, "cluster_client_num", "2 or more", clients)
        scores = clustering.SCORES
        require(self.eval_type in scores, "eval_type", " or ".join(scores), self.eval_type)
        require(self.score_rounds >= 1, "score_rounds", "1 or more", self.score_rounds)
        if self.score_rounds > 1 and self.classifier is None:
            raise UsageError(
                "--score-rounds needs --classifier", "name the run whose rounds are scored"
            )

        # The default type is as good as none where clients report labels.
        types_without_vectors = (clustering.NOT_EVAL, clustering.SILHOUETTE_SCORE)
        if self.answer == LABEL and self.eval_type not in types_without_vectors:
            text = f"--eval-type {self.eval_type} is of vectors, and labels have no such score"
            raise UsageError(text, "leave it out, or name --answer vector")
        has_score = self.answer != LABEL and self.eval_type != clustering.NOT_EVAL
        if self.score_rounds > 1 and not has_score:
            text = "--score-rounds scores vectors, and there is no score with --answer label or --eval-type NOT_EVAL"
            raise UsageError(text, "leave out --score-rounds, or these")


class Infer(Learner):
    """One evaluation, or one of each model; a served fleet is evaluated over and over.

    The last evaluation counts.
    """

    name = "infer"
    command = "infer"
    Options = Options
    individual = True
    modules = ("inference",)
    rounds_option = "score_rounds"

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        """Load or train the classifier, and plan the rounds; evaluate at once if no device reports.

        data: instead of the data set that the options name; its held-out records are the clients'.
        Raises UsageError for options that do not suit each other or the population.
        """
        self.options = options
        require_everybody(population, "inference")
        data = self._load(data, population.knows_records)
        self._round = 0
        self._evaluation: dict[str, Any] | None = None  # the last one
        self._figures: dict[str, float] = {}  # of the last round
        # The figures of each model, where no device is asked.
        self._computed: list[dict[str, float]] = []

        classes, features = self._classifier.mantissas.shape
        if classes * features > wire.MAX_VALUES:
            raise UsageError(
                f"{classes} classes of {features} features are more than the {wire.MAX_VALUES} parameters "
                "that a device takes",
                hint=f"one of: {', '.join(clustering.CLASSES)}",
            )
        self._plan_rounds(population, data)
        self.designs = []
        if self._is_protected:
            self.designs = [self._design(device_class) for device_class in options.classes()]
        else:
            self._require_simulation(population)
            self._compute(np.arange(self.clients or 0))

    def _load(self, data: Dataset | None, knows_records: bool) -> Dataset | None:
        """Set the classifiers, and return the data set whose held-out records the clients hold.

        data: the data set, instead of the one that the options name. knows_records: whether the
        host gives the clients their records; if not, and the classifier is that of a run, there is
        no data set.
        """
        options = self.options
        if options.classifier is None:
            if data is None:
                named = clustering.load(options.dataset)
                data = named.divided(held_out(len(named.labels), options.held_out))
            self._classifiers = [trained(data)]
            return data

        run = LearnedBy.read(options.classifier)
        if data is None and knows_records:
            data = load(options.dataset, classes=run.classes > 1)
        if data is not None:
            run.require_for(data)
        self._classifiers = run.classifiers(options.score_rounds)
        return data

    def _plan_rounds(self, population: Population, data: Dataset | None) -> None:
        """Set how many rounds, clients and reports there will be, and what the clients hold.

        data: the data set whose held-out records they hold. Raises UsageError.
        """
        options, schedule = self.options, population.schedule
        self.clients = options.cluster_client_num or None
        if population.knows_records:
            assert data is not None
            order = np.random.default_rng(options.seed).permutation(data.test)
            available = population.clients or len(order)
            self.clients = self.clients or min(_CLIENTS, available)
            hint = f"ask for {available} or fewer, or hold out more records"
            require_clients(self.clients, available, " to be clustered", hint)
            self.holdings = Holdings(data.records(np.arange(len(data.labels))), order)

        if schedule is not None and options.score_rounds > 1:
            raise UsageError(
                "a served fleet has one classifier", "leave out --score-rounds, or use tern infer"
            )
        self.rounds = len(self._classifiers)
        if schedule:
            self.rounds = schedule.rounds
        self.times = self.rounds or 1
        self.reports = None
        if self.clients is not None and self.rounds is not None:
            self.reports = self.clients * self.rounds

    # Protection

    @property
    def _is_label(self) -> bool:
        """Whether clients report labels, not vectors of probabilities."""
        return bool(self.options.answer == LABEL)

    @property
    def _is_protected(self) -> bool:
        """Whether devices report, with noise that a card has."""
        options = self.options
        has_noise = options.privacy_eval_type != clustering.NOT_ENCRYPT
        return bool(has_noise and options.unprotected is None)

    def _require_simulation(self, population: Population) -> None:
        """Raise UsageError unless the fleet is simulated: devices protect what they send."""
        is_simulated = population.knows_records and population.clients is not None
        if not is_simulated or population.schedule is not None:
            self.options.classes()  # refuses noise that no board has
            text = (
                f"no device sends a result as {clustering.NOT_ENCRYPT}: what it sends is protected"
            )
            raise UsageError(text, "compare with the score without noise, or ask a simulated fleet")

    def _design(self, device_class: DeviceClass) -> ReportDesign:
        """Design the report of a class: a randomised label, or probabilities with Laplace noise."""
        epsilon, share = device_class.epsilon, device_class.share
        if self._is_label:
            classes = len(self._classifier.mantissas)
            card = mechanisms.design("grr", levels=classes, epsilon_micro=epsilon).decode()
            mechanism, what = "grr", "label"
        else:
            card = cards.decode(clustering.noise_card(epsilon))
            mechanism, what = "laplace", "vector of probabilities"
        return ReportDesign(
            card=card,
            k=1,
            variance=0.0,  # no step of a model depends on it
            mechanism=mechanism,
            epsilon=epsilon,
            share=share,
            what=what,
        )

    # Rounds

    @property
    def done(self) -> bool:
        return self.rounds is not None and self._round >= self.rounds

    @property
    def _classifier(self) -> Classifier:
        """The classifier of the round under way."""
        return self._classifiers[min(self._round, len(self._classifiers) - 1)]

    def cohorts(self, devices: Sequence[int] | Devices) -> list[Cohort]:
        parts = by_class(self.designs, devices[: self.clients], self.options.seed)
        return [(self._question(part.design), part.devices) for part in parts]

    def _question(self, design: ReportDesign) -> Question:
        """Return the question to a class of devices: to classify their record with the model."""
        classifier = self._classifier
        classes = len(classifier.mantissas)
        reported_values = classes
        if self._is_label:
            reported_values = 1
        return Question(
            model=wire.SOFTMAX,
            parameters=classifier.mantissas.reshape(-1).tolist(),
            exponent=classifier.exponent,
            card=design.card.data,
            k=reported_values,
            classes=classes,
        )

    def learn(self, result: RoundResult, devices: Sequence[int] | Devices) -> None:
        self._figures = {}
        if result.reports:
            self._evaluation = self._evaluate_round(result, devices)
            self._figures = self._figures_of(self._evaluation)
        self._round += 1

    def _evaluate_round(
        self, result: RoundResult, devices: Sequence[int] | Devices
    ) -> dict[str, Any]:
        """Evaluate the answers of a round, for JSON: clusters, scores, and shares of the classes."""
        results, reporters = [], []
        for cohort in result.cohorts:
            if cohort.answers is not None:
                results.append(self._results_of(cohort.card, cohort.answers.symbols))
                reporters.append(cohort.answers.devices)
        ids = np.concatenate(reporters)
        # A device may have been revoked since it answered.
        is_known = np.isin(ids, np.asarray(devices))
        clients = clients_of(devices, ids[is_known])
        evaluation = self._evaluate(np.concatenate(results)[is_known], clients)

        # The share of each class among labels, or its mean probability.
        if self._is_label:
            label_counts = [(cohort.card, cohort.counts[0], None) for cohort in result.cohorts]
            shares = estimate.combine_frequencies(label_counts)
        else:
            counts = [(cohort.card, cohort.counts) for cohort in result.cohorts]
            shares = estimate.combine(counts)
        return evaluation | {"shares": _shares(shares.mean, shares.low, shares.high)}

    def _results_of(self, card: cards.Card, symbols: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Decode symbols (n x k) into labels (n), or into vectors of probabilities (n x classes)."""
        if self._is_label:
            labels: npt.NDArray[Any] = symbols[:, 0]
            return labels
        vectors: npt.NDArray[Any] = estimate.symbol_values(card)[symbols]
        return vectors

    def _compute(self, clients: Devices) -> None:
        """Evaluate each model on results that no device would send, with little noise or none.

        This is for simulations alone: the noise is in floats. clients: from 0.
        """
        for model_number in range(len(self._classifiers)):
            results = self._exact(clients)
            laplace_eps = self.options.unprotected
            if laplace_eps is not None:
                rng = np.random.default_rng([self.options.seed, model_number])
                results = results + rng.laplace(0, 1 / laplace_eps, results.shape)
            class_shares = results.mean(axis=0)
            if self._is_label:
                results = results.argmax(axis=1)
                class_shares = np.bincount(results, minlength=len(class_shares)) / len(results)
            evaluation = self._evaluate(results, clients)
            self._evaluation = evaluation | {"shares": _shares(class_shares)}
            self._computed.append(self._figures_of(self._evaluation))
            self._round += 1

    def _exact(self, clients: Devices) -> Floats:
        """The class probabilities of these clients without noise (n x classes)."""
        assert self.holdings is not None
        rows = self.holdings.rows(clients)[:, 0, :-1]
        return probabilities(self._classifier.mantissas, self._classifier.exponent, rows) / ONE

    def _evaluate(self, results: npt.NDArray[Any], clients: Devices) -> dict[str, Any]:
        """Return the clusters of results, their scores, and the settings of the noise, for JSON.

        results: labels (n), or vectors (n x classes), of these clients.
        """
        exact = None
        if self.holdings is not None:
            exact = self._exact(clients)
        if self._is_label:
            return self.noise_settings() | clustering.labelled(results, exact)
        return self.noise_settings() | clustering.cluster(self.options.eval_type, results, exact)

    def _figures_of(self, evaluation: Mapping[str, Any]) -> dict[str, float]:
        """Return the figures of an evaluation that are known, by name.

        The loss is that of the model in its own run, if the models of several rounds are scored.
        """
        values = {name: evaluation[name] for name in _FIGURES}
        if self.options.score_rounds > 1:
            values["loss"] = self._classifier.loss
        figures = {}
        for name, value in values.items():
            if value is not None:
                figures[name] = float(value)
        return figures

    def figures(self) -> dict[str, float]:
        return self._figures

    def state(self) -> dict[str, Any]:
        return {"round": self._round, "found": self._evaluation}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._round, self._evaluation = int(state["round"]), state["found"]

    # The result

    def noise_settings(self) -> dict[str, Any]:
        """Return the settings of the noise for JSON, of the class of devices that pays most.

        They have the true epsilon beside MindSpore's setting, which is half of it. For vectors,
        they
        also have the noise that a probability gets at most, and with which probability.
        """
        options = self.options
        laplace_eps = options.unprotected
        if self.designs:
            laplace_eps = max(design.epsilon / MICRO / 2 for design in self.designs)
        true_epsilon = None
        if laplace_eps is not None:
            true_epsilon = 2 * laplace_eps
        settings = {
            "privacy_eval_type": options.privacy_eval_type,
            "laplace_eval_eps": laplace_eps,
            "epsilon_true": true_epsilon,
            "eval_type": options.eval_type,
        }
        if laplace_eps is not None and not self._is_label:
            probability = options.probability or PROBABILITY
            # The noise |z| of scale 1 / laplace_eps exceeds x with probability exp(-x laplace_eps).
            settings["noise"] = -math.log1p(-probability) / laplace_eps
            settings["probability"] = probability
        return settings

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The last evaluation, the scores of all models, and what it cost, for JSON.

        history: an entry with the figures of each round.
        """
        classes, features = self._classifier.mantissas.shape
        result = {
            "dataset": self.options.dataset,
            "classes": classes,
            "features": features,
            "answer": self.options.answer,
            **(self._evaluation or _NOTHING_YET),
            "scores": self._scores(history),
        }
        if self.designs:
            result["budgets"] = [each.summary(self.times) for each in self.designs]
            result |= report_summary(self.designs[0], self._question(self.designs[0]))
        return result

    def _scores(self, history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return the figures of each evaluation, with the number of a round.

        If several models of a finished run are scored, it is the round in which each was learned;
        otherwise it is the round of this run. history: an entry with the figures of each round.
        """
        figures_of_rounds: Sequence[Mapping[str, Any]] = self._computed or history
        if self.options.score_rounds > 1:
            rounds = [classifier.round for classifier in self._classifiers]
        else:
            rounds = [figures.get("round") for figures in figures_of_rounds]
        scores = []
        # A run that was stopped has figures of fewer rounds than there are models.
        for number, figures in zip(rounds, figures_of_rounds, strict=False):
            score = {"round": number}
            for name in (*_FIGURES, "loss"):
                score[name] = figures.get(name)
            scores.append(score)
        return scores

    @classmethod
    def summary(cls, result: Mapping[str, Any]) -> list[str]:
        """The scores, the noise, and the clusters and shares of the classes, in lines for people."""
        group, value = "cluster", "mean probability"
        if result.get("answer") == LABEL:
            group, value = "label", "share"
        sizes = [f"{label}: {size}" for label, size in result["clusters"].items()]
        shares = []
        for label, share in result.get("shares", {}).items():
            shares.append(f"{label}: {_share(share)}")
        return [
            _score_line(result),
            *_score_range_lines(result),
            *_noise_lines(result),
            f"clients by {group}: {', '.join(sizes) or 'none'}",
            f"{value} of each class: {', '.join(shares) or 'none'}",
        ]


def _shares(
    class_shares: Floats, low: Floats | None = None, high: Floats | None = None
) -> dict[str, dict[str, float]]:
    """Return the share of each class by the class's number, for JSON.

    low, high: the ends of the shares' intervals, unless the shares are exact.
    """
    shares = {}
    for number, share in enumerate(class_shares.tolist()):
        entry = {"share": share}
        if low is not None and high is not None:
            entry["low"], entry["high"] = float(low[number]), float(high[number])
        shares[str(number)] = entry
    return shares


# Results for people


def _score_line(result: Mapping[str, Any]) -> str:
    """Write a line about the score of the clusters, and about what the noise changed.

    The agreement is the share of clients that are in the same cluster without noise; it is unknown
    where devices have records of their own.
    """
    is_label = result.get("answer") == LABEL
    is_comparable = result["agreement"] is not None
    parts = []
    if not is_label and result.get("eval_type") not in (None, clustering.NOT_EVAL):
        score = f"{result['eval_type']} {_score(result['score'])}"
        if is_comparable:
            score += f"   (without noise {_score(result['score_without_noise'])})"
        parts.append(score)
    if is_comparable:
        group = "cluster"
        if is_label:
            group = "label"
        parts.append(f"{100 * result['agreement']:.1f} % of the clients keep their {group}")
    return "; ".join(parts) or "not scored"


def _score(value: float | None) -> str:
    return "none (a single cluster has no score)" if value is None else f"{value:.4f}"


def _score_range_lines(result: Mapping[str, Any]) -> list[str]:
    """Say in a line how the score and the loss changed from the first scored model to the last.

    There is no line unless two or more models have a score.
    """
    scores = [score for score in result.get("scores", ()) if score["score"] is not None]
    if len(scores) < 2:
        return []
    first, last = scores[0], scores[-1]
    line = f"score {first['score']:.4f} to {last['score']:.4f}"
    if None not in (first["loss"], last["loss"]):
        line += f", log-loss {first['loss']:.4f} to {last['loss']:.4f}"
    return [f"{line}, from round {first['round']} to round {last['round']}"]


def _noise_lines(result: Mapping[str, Any]) -> list[str]:
    """Write a line about the reports, or about what is wrong with noise that no device adds.

    It also names MindSpore's setting. There is no line if results are exact.
    """
    true_epsilon = result.get("epsilon_true")
    if true_epsilon is None:
        return []
    setting = result["laplace_eval_eps"]
    if result.get("epsilon_paid") is None:
        noise = f"noise of at most {result['noise']:.3g} with probability {result['probability']:g}"
        return [f"{noise} {weakness(true_epsilon)} (--laplace-eval-eps {setting:.10g})"]
    reports = f"{counted(result['reports'], 'report')} of {result['bytes_per_report']} bytes"
    line = f"{reports} in {result['seconds']:.1f} s"
    if result.get("answer") != LABEL:
        line += f" (--laplace-eval-eps {setting:g})"
    return [line]


def _share(share: Mapping[str, float]) -> str:
    text = f"{share['share']:.3f}"
    if "high" in share:
        text += f" +- {share['high'] - share['share']:.3f}"
    return text
