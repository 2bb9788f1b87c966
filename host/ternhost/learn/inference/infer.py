"""Protected inference: every client classifies a record of its own and reports once, under exact
noise.

It reports either its class probabilities under Laplace noise, which show clusters and certainty, or
its label by randomised response, which is far more accurate for its epsilon. Clients that tern
fills hold the held-out records, so that their results can be compared with those without noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tern import card as cards
from tern import wire
from tern.fixed import ONE
from ternhost import datasets
from ternhost.count.questions import Question
from ternhost.count.rounds import RoundResult
from ternhost.datasets import Dataset, Holdings
from ternhost.errors import UsageError
from ternhost.learn.base import (
    Cohort,
    Learner,
    Population,
    report_summary,
    require_everybody,
)
from ternhost.learn.collecting import estimate
from ternhost.learn.data_options import DataOptions, of_records
from ternhost.learn.designs import DeviceClass, ReportDesign, by_class
from ternhost.learn.devices import Devices, clients_of
from ternhost.learn.inference import clustering
from ternhost.learn.inference.classifiers import Classifier, LearnedBy, trained
from ternhost.learn.inference.noise import LABEL, NoiseOptions, to_classify, weakness
from ternhost.learn.owners import to_owners
from ternhost.learn.parameters import Floats
from ternhost.options import require
from ternhost.privacy import mechanisms
from ternhost.privacy.base import MICRO
from ternhost.text import counted
from ternhost.vectorised import probabilities

_CLIENTS = 1000  # by default
_FEWEST_CLIENTS = 2  # of fewer there are no clusters
_FIGURES = ("score", "score_without_noise", "agreement")
_NOTHING_YET = {
    "clients": 0,
    "clusters": {},
    "shares": {},
    "score": None,
    "agreement": None,
}


@dataclass(frozen=True)
class Options(NoiseOptions, DataOptions):
    """Options of protected inference.

    Clients get the records that are held out from training the classifier.
    """

    data: str = of_records("iris", metavar="D")
    held_out: float | None = of_records(0.5, metavar="SHARE")
    classifier: str | Path | None = to_classify(
        None,
        "directory of a finished run, whose model classifies",
        metavar="DIR",
        shown="one that is trained for this",
        instead_of=("held_out",),
    )
    score_rounds: int = to_classify(
        1,
        "with --classifier: rounds whose models are scored; each costs",
        metavar="N",
    )
    clients: int = to_classify(
        0,
        shown="1000, or all if there are fewer",
        metavar="N",
    )
    score: str = to_classify(
        clustering.SILHOUETTE,
        "score that judges the clusters of vectors",
        choices=clustering.SCORES,
    )
    seed: int = to_classify(1, metavar="S")

    def check(self) -> None:
        """Raise UsageError for options out of bounds, or that contradict each other."""
        require(self.seed >= 0, "seed", "0 or more", self.seed)
        clients = self.clients
        is_allowed = clients == 0 or clients >= _FEWEST_CLIENTS
        require(is_allowed, "clients", f"{_FEWEST_CLIENTS} or more", clients)
        scores = clustering.SCORES
        require(self.score in scores, "score", " or ".join(scores), self.score)
        require(self.score_rounds >= 1, "score_rounds", "1 or more", self.score_rounds)
        scores_several_models = self.score_rounds > 1
        if scores_several_models and self.classifier is None:
            raise UsageError(
                "--score-rounds needs --classifier", "name the run whose rounds are scored"
            )

        # Labels have no score. An error is only for a user who named a score: the default is let
        # pass, as one that nobody asked for.
        allowed_of_labels = (clustering.NONE, clustering.SILHOUETTE)
        if self.answer == LABEL and self.score not in allowed_of_labels:
            text = f"--score {self.score} is of vectors, and labels have no such score"
            raise UsageError(text, "leave it out, or name --answer vector")
        has_score = self.answer != LABEL and self.score != clustering.NONE
        if scores_several_models and not has_score:
            text = "--score-rounds scores vectors, and there is no score with --answer label or --score none"
            raise UsageError(text, "leave out --score-rounds, or these")


class Infer(Learner):
    """One evaluation, or one of each model; a served fleet is evaluated over and over.

    The last evaluation counts.
    """

    name = "infer"
    about = "devices classify their records, and report with noise"
    example = "--answer label"
    command = "infer"
    Options = Options
    individual = True
    modules = ("inference",)
    rounds_option = "score_rounds"

    def __init__(self, options: Any, population: Population, data: Dataset | None = None) -> None:
        """Load or train the classifier, and plan the rounds in which clients use it.

        Usually clients report results with the noise of a card (a certified table of
        probabilities). With less noise or none, which is for simulations alone, no client is asked:
        all results are computed at once.

        options: the `Options` of this module.
        population: the clients that can be asked.
        data: the data set to use instead of the one that the options name. Clients hold its
            held-out records.
        Raises UsageError for options that do not suit each other or the population.
        """
        self.options = options
        require_everybody(population, "inference")
        data = self._load(data, population.knows_records)
        self._round = 0  # how many have ended
        self._evaluation: dict[str, Any] | None = None  # clusters and shares of the last round
        # The numbers that judge the clusters, such as "score", by name: of the last round, and,
        # where no device is asked, of each model.
        self._figures: dict[str, float] = {}
        self._computed: list[dict[str, float]] = []

        classes, features = self._classifier.mantissas.shape
        if classes * features > wire.MAX_VALUES:
            raise UsageError(
                f"{classes} classes of {features} features are more than the {wire.MAX_VALUES} parameters "
                "that a device takes",
                hint=f"one of: {', '.join(clustering.CLASSES)}",
            )
        self._plan_rounds(population, data)
        self.designs = []  # none if nothing is reported
        if self._is_protected:
            self.designs = [self._design(device_class) for device_class in options.classes()]
        else:
            self._require_simulation(population)
            self._compute(np.arange(self.clients or 0))

    def _load(self, data: Dataset | None, knows_records: bool) -> Dataset | None:
        """Set the classifiers and the names of classes, and return the clients' data set.

        Clients hold its held-out records.

        The classifiers are the models of a finished run, or one that is trained for this.

        data: the data set, instead of the one that the options name.
        knows_records: whether the host gives the clients their records. If it does not, and the
            classifier is that of a run, no data set is needed: the result is None.
        """
        options = self.options
        if options.classifier is None:  # a classifier is trained, on all but the held-out records
            if data is None:
                data = clustering.load(options.data, options.selection)
            self._classifiers = [trained(data)]
            self._class_names = data.classes
            return data

        # The user has named a finished run.
        run = LearnedBy.read(options.classifier)
        if data is None and knows_records:
            # As that run divided it, so that clients hold what it has held out.
            selection = options.owners
            data = datasets.load(options.data, classes=run.classes > 1, selection=selection)
        if data is not None:
            run.require_for(data)
        self._classifiers = run.classifiers(options.score_rounds)
        if self._is_label:
            self._classifiers = [each.deciding(run.threshold) for each in self._classifiers]
        self._class_names = run.class_names
        return data

    def _plan_rounds(self, population: Population, data: Dataset | None) -> None:
        """Set how many rounds, clients and reports there will be, and what the clients hold.

        There is a round for each classifier. A served fleet, which has a schedule, is asked over and
        over, and has no number of reports.

        population: the clients that can be asked, and whether the host knows their records.
        data: the data set whose held-out records the clients hold.
        Raises UsageError if fewer than two clients hold a record.
        """
        options, schedule = self.options, population.schedule
        self.clients = options.clients or None
        if population.knows_records:
            assert data is not None
            self.holdings, available = self._hand_out(data, population.clients)
            most = available if self.holdings.names else _CLIENTS
            self.clients = min(options.clients or most, available)
            if options.clients > available:
                text = f"all {counted(available, 'client')} are asked, since there are fewer than "
                self.notes += (f"{text}the {options.clients:,} of --clients",)
            if self.holdings.clients < _FEWEST_CLIENTS:
                holders = counted(self.holdings.clients, "client")
                text = f"{holders} get held-out records of {data.name}: nothing to cluster"
                hint = "name a larger --held-out, or more records"
                raise UsageError(text, hint)

        if schedule is not None and options.score_rounds > 1:
            raise UsageError(
                "a served fleet has one classifier", "leave out --score-rounds, or use 'tern infer'"
            )
        self.rounds = len(self._classifiers)
        if schedule:
            self.rounds = schedule.rounds
        self.times = self.rounds or 1  # that a client reports; without an end, a round counts
        self.reports = None
        if self.clients is not None and self.rounds is not None:
            self.reports = self.clients * self.rounds

    def _hand_out(self, data: Dataset, clients: int | None) -> tuple[Holdings, int]:
        """Give the held-out records to their owners, or else one to each client, in random order.

        clients: how many the fleet has; None: as many as are needed.
        Returns what clients hold, and how many clients there may be. Raises UsageError if there are
        more clients than owners.
        """
        if data.owners is not None:
            owned = to_owners(data, data.test, clients)
            self.notes += owned.notes
            return owned.holdings, owned.holdings.clients
        order = np.random.default_rng(self.options.seed).permutation(data.test)
        return Holdings(data.all_records, order), clients or len(order)

    @property
    def class_names(self) -> Sequence[str]:
        return self._class_names

    # Protection

    @property
    def _is_label(self) -> bool:
        """Whether clients report labels, not vectors of probabilities."""
        return bool(self.options.answer == LABEL)

    @property
    def _is_protected(self) -> bool:
        """Whether clients report, with the noise of a card; if not, results are simulated."""
        options = self.options
        return not options.no_noise and options.unprotected is None

    def _require_simulation(self, population: Population) -> None:
        """Raise UsageError unless the fleet is simulated.

        Only a simulation can do with little noise or none: real devices protect what they send.
        """
        # A simulated fleet has a fixed number of clients, whose records the host knows. A schedule
        # means that real devices are served round after round.
        is_simulated = population.knows_records and population.clients is not None
        if not is_simulated or population.schedule is not None:
            self.options.require_noise()

    def _design(self, device_class: DeviceClass) -> ReportDesign:
        """Design the report of a class of clients, which share an epsilon.

        It is the label by randomised response ("grr"), or the vector of class probabilities with
        Laplace noise. Both follow a card, the table of probabilities from which a device draws.
        """
        epsilon = device_class.epsilon
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
            share=device_class.share,
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
        """Return the question of the next round to each class, with the devices that it is for.

        devices: all devices of the run.
        """
        parts = by_class(self.designs, devices[: self.clients], self.options.seed)
        return [(self._question(part.design), part.devices) for part in parts]

    def _question(self, design: ReportDesign) -> Question:
        """Return the question to some of the clients: classify your record with this model.

        Clients differ in their epsilon, so that each epsilon has a question with a card (the table
        from which a device draws its report) of its own.

        design: the design of the reports of these clients.
        """
        classifier = self._classifier  # its weights are mantissas * 2**exponent
        classes = len(classifier.mantissas)
        reported_values = classes  # a probability of each class
        if self._is_label:  # a single number: the most probable class
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
        """Evaluate the answers of a round, if there are any. devices: all devices of the run."""
        self._figures = {}
        if result.reports:
            self._evaluation = self._evaluate_round(result, devices)
            self._figures = self._figures_of(self._evaluation)
        self._round += 1

    def _evaluate_round(
        self, result: RoundResult, devices: Sequence[int] | Devices
    ) -> dict[str, Any]:
        """Return the clusters of a round's answers and the share of each class, for JSON.

        Clusters have a score. The share of a class is the estimated share of clients that have its
        label, or the mean of its probability over the clients.

        result: the reports, by cohort: a cohort has the clients that got the same question.
        devices: all devices of the run.
        """
        results, reporters = [], []
        for cohort in result.cohorts:
            if cohort.answers is not None:
                results.append(self._results_of(cohort.card, cohort.answers.symbols))
                reporters.append(cohort.answers.devices)
        ids = np.concatenate(reporters)
        # A device may have been revoked since it answered; then it is no longer among the devices.
        is_known = np.isin(ids, np.asarray(devices))
        clients = clients_of(devices, ids[is_known])
        evaluation = self._evaluate(np.concatenate(results)[is_known], clients, result.number)

        if self._is_label:
            label_reports = []
            for cohort in result.cohorts:
                label_counts = cohort.counts[0]  # the only row, as a report has one label
                label_reports.append(
                    estimate.CategoryReports(cohort.card, label_counts, hashed_reports=None)
                )
            shares = estimate.combine_frequencies(label_reports)
        else:
            counts = [(cohort.card, cohort.counts) for cohort in result.cohorts]
            shares = estimate.combine(counts)
        return evaluation | {"shares": _shares(shares.mean, shares.low, shares.high)}

    def _results_of(self, card: cards.Card, symbols: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Decode the symbols of reports into labels (n) or class probabilities (n x classes).

        card: the table from which devices drew the symbols (n x k).
        """
        if self._is_label:
            labels: npt.NDArray[Any] = symbols[:, 0]
            return labels
        vectors: npt.NDArray[Any] = estimate.symbol_values(card)[symbols]
        return vectors

    def _compute(self, clients: Devices) -> None:
        """Evaluate each model on results with less noise than any card has, or with none.

        This is for simulations alone: no device would send such results, and the noise is in
        floats, whose low bits may show what the noise hides. A round of the run stands for a model.

        clients: the numbers of the clients, from 0.
        """
        for model_number in range(len(self._classifiers)):
            number = model_number + 1  # of the round, which says which of its records a client uses
            results = self._exact(clients, number)  # clients x classes
            epsilon = self.options.unprotected  # None: no noise
            if epsilon is not None:
                rng = np.random.default_rng([self.options.seed, model_number])
                # Two vectors of probabilities differ by at most 2 in the L1 norm.
                results = results + rng.laplace(loc=0, scale=2 / epsilon, size=results.shape)
            class_shares = results.mean(axis=0)
            if self._is_label:
                results = results.argmax(axis=1)
                class_shares = np.bincount(results, minlength=len(class_shares)) / len(results)
            evaluation = self._evaluate(results, clients, number)
            self._evaluation = evaluation | {"shares": _shares(class_shares)}
            self._computed.append(self._figures_of(self._evaluation))
            self._round += 1

    def _exact(self, clients: Devices, number: int) -> Floats:
        """Return the class probabilities of these clients' records without noise (n x classes).

        number: that of the round, which says whose turn it is of the records of a client.
        """
        assert self.holdings is not None
        features = self.holdings.turns(clients, number)[:, :-1]  # without the label
        classifier = self._classifier
        return probabilities(classifier.mantissas, classifier.exponent, features) / ONE

    def _evaluate(self, results: npt.NDArray[Any], clients: Devices, number: int) -> dict[str, Any]:
        """Return the clusters of clients' results, with score and settings of the noise, for JSON.

        results: labels (n), or vectors of probabilities (n x classes), of these clients (n).
        clients: their numbers, from 0. number: that of the round.
        """
        exact = None  # results without noise, where the host knows the records
        if self.holdings is not None:
            exact = self._exact(clients, number)
        if self._is_label:
            return self.noise_settings() | clustering.labelled(results, exact)
        return self.noise_settings() | clustering.cluster(self.options.score, results, exact)

    def _figures_of(self, evaluation: Mapping[str, Any]) -> dict[str, float]:
        """Return the numbers that judge a round's clusters by name, without those that are unknown.

        They are the score, the score without noise, and the agreement of both. If the models of
        several rounds of a run are scored, the loss of the model in its own run is one of them.

        evaluation: the clusters with these numbers, as of `_evaluate`; unknown ones are None.
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
        """Go back to a stored `state()`."""
        self._round = int(state["round"])
        self._evaluation = state["found"]

    # The result

    def noise_settings(self) -> dict[str, Any]:
        """Return the settings of the noise for JSON: the largest epsilon, and the name of the score.

        The epsilon is None where results have no noise.
        """
        epsilon = self.options.unprotected  # of a simulation
        if self.designs:  # devices report, by the epsilons of their designs
            epsilon = max(design.epsilon / MICRO for design in self.designs)
        return {"epsilon": epsilon, "score_name": self.options.score}

    def result(self, history: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the last evaluation, the scores of all models, and what it cost, for JSON.

        history: an entry with the figures of each round.
        """
        classes, features = self._classifier.mantissas.shape
        evaluation = dict(self._evaluation or _NOTHING_YET)
        for name in ("clusters", "shares"):
            evaluation[name] = self._by_class_name(evaluation[name])
        result = {
            "data": self.options.data,
            "classes": classes,
            "class_names": list(self._class_names),
            "features": features,
            "answer": self.options.answer,
            **evaluation,
            "scores": self._scores(history),
        }
        if self.designs:  # clients have reported
            first_design = self.designs[0]
            result["budgets"] = [design.summary(self.times) for design in self.designs]
            result |= report_summary(first_design, self._question(first_design))
        return result

    def _by_class_name(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return values by the names of classes instead of their numbers, if they have names."""
        if not self._class_names:
            return dict(values)
        return {self._class_names[int(number)]: value for number, value in values.items()}

    def _scores(self, history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return what judges the clusters of each round, for JSON: the score and the like.

        Each entry has the number of a round. If several models of a finished run are scored, it is
        the round of that run in which each was learned; otherwise it is the round of this run. A
        number that is unknown is None.

        history: an entry for each round of this run, with the numbers of `_figures_of`.
        """
        figures_of_rounds: Sequence[Mapping[str, Any]] = history
        if self._computed:  # a simulation, which has computed them without any round
            figures_of_rounds = self._computed
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
        """Return lines for people: the scores, the noise, the clusters, and the shares of classes."""
        group, value = "cluster", "mean probability"
        if result.get("answer") == LABEL:
            group, value = "label", "share"
        sizes = []
        for label, size in result["clusters"].items():
            sizes.append(f"{label}: {size}")
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
    """Return the share of each class for JSON, with the class's number as the key.

    low, high: the ends of the shares' intervals; None if the shares are exact.
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
    """Return a line for people about the score of the clusters, and what the noise changed.

    The noise changed the score, and the cluster of some clients; both are unknown where devices
    have records of their own. For example "silhouette 0.512   (without noise 0.734); 91.0 %
    of the clients keep their cluster".
    """
    is_label = result.get("answer") == LABEL  # labels have no score
    has_comparison = result["agreement"] is not None  # with results without noise
    parts = []
    if not is_label and result.get("score_name") not in (None, clustering.NONE):
        score = f"{result['score_name']} {_score(result['score'])}"
        if has_comparison:
            score += f"   (without noise {_score(result['score_without_noise'])})"
        parts.append(score)
    if has_comparison:
        group = "cluster"
        if is_label:
            group = "label"
        parts.append(f"{100 * result['agreement']:.1f} % of the clients keep their {group}")
    return "; ".join(parts) or "not scored"


def _score(value: float | None) -> str:
    return "none (a single cluster has no score)" if value is None else f"{value:.4f}"


def _score_range_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line that says how score and loss changed from the first model to the last.

    There is no line unless two or more models have a score.
    """
    scores = []
    for score in result.get("scores", ()):
        if score["score"] is not None:
            scores.append(score)
    if len(scores) < 2:
        return []
    first, last = scores[0], scores[-1]
    line = f"score {first['score']:.4f} to {last['score']:.4f}"
    if first["loss"] is not None and last["loss"] is not None:
        line += f", log-loss {first['loss']:.4f} to {last['loss']:.4f}"
    return [f"{line}, from round {first['round']} to round {last['round']}"]


def _noise_lines(result: Mapping[str, Any]) -> list[str]:
    """Return a line for people about the reports, or about noise that is only simulated.

    For example "1,000 reports of 12 bytes in 3.1 s". If results were simulated with less noise than
    devices add, the line says instead what is wrong with that. There is no line if results are
    exact, without any noise.
    """
    epsilon = result.get("epsilon")
    if epsilon is None:
        return []
    is_simulated = result.get("epsilon_paid") is None  # no device has reported
    if is_simulated:
        return [f"the noise {weakness(epsilon)}"]
    reports = f"{counted(result['reports'], 'report')} of {result['bytes_per_report']} bytes"
    return [f"{reports} in {result['seconds']:.1f} s"]


def _share(share: Mapping[str, float]) -> str:
    """Return the share of a class in words, with half of its interval if there is one."""
    text = f"{share['share']:.3f}"
    if "high" in share:
        text += f" +- {share['high'] - share['share']:.3f}"
    return text
