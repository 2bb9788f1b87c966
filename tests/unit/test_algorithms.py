"""FedAvg and personalised budgets in `tern train`: who is asked what, what it costs, and that a run can go on."""

import json

import numpy as np
import pytest

from tern import card as cards
from tern import wire
from ternhost import vectorised
from ternhost.aggregate.questions import Question
from ternhost.algorithms import averaging as fedavg
from ternhost.algorithms import base as algorithms
from ternhost.cli import main
from ternhost.datasets import synthetic
from ternhost.drivers.simulated import SimulatedFleet
from ternhost.errors import RefusedError, UsageError
from ternhost.mechanisms import certify
from ternhost.runs.session import Options, Session, Watcher, designs_of

DATA = synthetic.logistic()
FEDAVG = Options(
    algorithm="fedavg", dataset="synthetic-logistic", mechanism="duchi", epsilon="8", clients=200, batch=4, rounds=5,
    share=0.3, fleet="simulated:200",
)  # fmt: skip
PERSONAL = Options(
    dataset="synthetic-logistic",
    epsilons="1:0.5,2:0.3,4:0.2",
    reports=1000,
    group=250,
    fleet="simulated:1000",
)


HIERA = Options(
    algorithm="hiera", dataset="synthetic-linear", model="linear", epsilon="12", reports=40_000, group=4000,
    fleet="simulated:40000",
)  # fmt: skip


def make(options, simulated=None):
    return algorithms.make(options, DATA, designs_of(options, DATA.dimension), simulated, None)


def run(options, path, watcher=None):
    with Session.begin(options, path, watcher) as session:
        return session.run()


def test_shares():
    assert algorithms.shares("1:0.5,2:0.5") == [("1", 0.5), ("2", 0.5)]
    assert algorithms.shares("0.25:8:1") == [("0.25:8", 1.0)]
    for wrong in ("", "1", "1:", ":1", "1:x", "1:0.5,2:0.4", "1:-1,2:2", "1:0,2:1", "1:nan"):
        with pytest.raises(UsageError):
            algorithms.shares(wrong)


@pytest.mark.parametrize("simulated", [None, 1000])
def test_classes_are_asked_in_cohorts_of_their_own_cards(simulated):
    algorithm = make(PERSONAL, simulated)
    assert [design.epsilon for design in algorithm.designs] == [1_000_000, 2_000_000, 4_000_000]
    assert len({design.k for design in algorithm.designs}) == 1
    np.testing.assert_array_equal(np.bincount(algorithm.of_class), [500, 300, 200])
    seen = []
    for _ in range(algorithm.rounds):
        cohorts = algorithm.cohorts()
        assert [question.card for question, _ in cohorts] == [
            design.card.data for design in algorithm.designs
        ]
        asked = np.concatenate([clients for _, clients in cohorts])
        assert len(set(asked.tolist())) == 250
        seen += asked.tolist()
        if simulated is None:
            for i, (_, clients) in enumerate(cohorts):
                assert set(algorithm.of_class[clients]) == {i}
        algorithm.learner.fail()
        algorithm.learner.stopped = None
    assert len(set(seen)) == 1000
    if simulated is None:
        assert sorted(seen) == list(range(1000))


def test_policies_are_the_clients_own():
    algorithm = make(PERSONAL)
    own = algorithms.policies(algorithm, None)
    for client, design in enumerate(algorithm.of_class):
        epsilon = algorithm.designs[design].epsilon
        assert (own[client].largest, own[client].budget) == (epsilon, epsilon)
    algorithm = make(FEDAVG)
    assert algorithm.times == 2  # 5 rounds of 60 of 200 clients
    (policy,) = set(algorithms.policies(algorithm, None))
    assert policy.largest == 8_000_000
    assert 0.999 * 16_000_000 < policy.budget <= 16_000_000
    assert set(algorithms.policies(algorithm, 99)) == {algorithms.Policy(8_000_000, 99)}


def test_a_question_of_local_training():
    (question, clients), *_ = make(FEDAVG).cohorts()
    assert len(clients) == 60
    assert (question.model, question.exponent, question.batch) == (wire.LOCAL + wire.LOGISTIC, -12, 4)
    assert question.local == (2, 2, round(0.25 * 2**20))
    assert set(question.parameters) == {0}
    both = make(Options(**{**vars(FEDAVG), "choices": "both"}))
    assert [question.local[2] for question, _ in both.cohorts()] == [2**17, 2**18, 2**19]


def test_simulated_clients_train_like_the_library():
    # a card that is never wrong at -1 and 1: with a tau that every weight exceeds, the symbols are signs of the moves
    rows = DATA.records(np.arange(40))
    card = designs_of(Options(mechanism="duchi", epsilon="20", k=1), DATA.dimension)[0].card
    d = DATA.dimension
    question = Question(wire.LOCAL + wire.LOGISTIC, [0] * d, -12, card.data, d, 4, (2, 2, 1))
    counts = SimulatedFleet(rows, 1, each=8).collect(1, [(question, np.arange(5))]).cohorts[0].counts
    moved = vectorised.train_locally(
        wire.LOGISTIC, np.zeros(d, np.int64), -12, rows.reshape(5, 8, -1), 2, 4, 2
    )
    np.testing.assert_array_equal(counts[:, 1], (moved > 0).sum(axis=0))
    with pytest.raises(UsageError, match="one record each"):
        SimulatedFleet(rows, 1, each=8).collect(
            1, [(Question(wire.LOGISTIC, [0] * d, -12, card.data, 1), np.arange(5))]
        )


def test_a_run_of_fedavg_tells_what_it_costs_before_and_after(tmp_path):
    notes = []
    result = run(FEDAVG, tmp_path / "store.sqlite", Watcher(note=notes.append))
    assert [note.split(": ")[1] for note in notes] == [
        f"2 x {result['k']} weights (tau 0.25) at {8 / result['k']:g}"
    ]
    assert (result["rounds"], result["reports"]) == (5, 300)
    (account,) = result["accounting"]
    assert account["epsilon_user_level"] == result["epsilon_per_client"] <= 16
    assert result["accuracy_nonprivate"] > 0.8
    assert result["accuracy"] > result["accuracy_baseline"] + 0.1
    assert all("accuracy_nonprivate" in entry for entry in result["history"])


@pytest.mark.parametrize("options", [FEDAVG, PERSONAL, HIERA])
def test_a_run_that_was_interrupted_comes_to_the_same_model(tmp_path, options):
    whole = run(options, tmp_path / "whole.sqlite")

    def stop(status):
        if status.round == 2 and status.ended:
            raise KeyboardInterrupt

    with (
        pytest.raises(BaseException, match="interrupted"),
        Session.begin(options, tmp_path / "cut.sqlite", Watcher(status=stop)) as session,
    ):
        session.run()
    with Session.resume(tmp_path / "cut.sqlite") as session:
        resumed = session.run()
    assert resumed["weights"] == whole["weights"]
    assert resumed["classes"] == whole["classes"]


def test_small_budgets_do_not_spoil_the_others(tmp_path):
    # inverse variance: with many more clients at a tiny epsilon the model is no worse than without them
    few = run(
        Options(dataset="synthetic-logistic", epsilon="8", reports=2000, fleet="simulated:2000"),
        tmp_path / "a",
    )
    mixed = run(
        Options(
            dataset="synthetic-logistic",
            epsilons="0.05:0.5,8:0.5",
            reports=4000,
            group=1000,
            fleet="simulated:40000",
        ),
        tmp_path / "b",
    )
    assert mixed["accuracy"] > few["accuracy"] - 0.03
    assert mixed["epsilon_per_client"] == pytest.approx(8)


def test_a_run_beyond_the_budget_does_not_start(tmp_path):
    for options in ({**vars(FEDAVG), "budget": "15"}, {**vars(PERSONAL), "budget": "3"}):
        with pytest.raises(RefusedError, match="its budget has"):
            run(Options(**options), tmp_path / "store.sqlite")
    assert (
        run(Options(**{**vars(FEDAVG), "budget": "16"}), tmp_path / "enough")["accounting"][0][
            "epsilon_budget"
        ]
        == 16
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clients": 10**6}, "cannot be had"),
        ({"clients": 201}, "at most --clients 200"),
        ({"rounds": 0}, "needs a round"),
        ({"share": 0.0}, "share gamma"),
        ({"local_epochs": 0}, "epochs"),
        ({"rate": 17}, "rate"),
        ({"tau": 0.0}, "safe range"),
        ({"tau": 9.0}, "safe range"),
        ({"choices": "0.25:1"}, "no choice"),
        ({"choices": "x:1:1"}, "no choice"),
        ({"weights": "much"}, "weights"),
        ({"records": 0}, "record"),
        ({"algorithm": "adam"}, "no algorithm"),
    ],
)
def test_fedavg_that_cannot_be(tmp_path, change, message):
    with pytest.raises(UsageError) as caught:
        run(Options(**{**vars(FEDAVG), **change}), tmp_path / "store.sqlite")
    assert message in f"{caught.value.message} {caught.value.hint}"


def test_hiera_pays_the_true_loss(tmp_path):
    (design,) = designs_of(HIERA, 16)
    assert (design.card.shape, design.k) == (cards.HIERARCHY, 1)
    assert 11_999_000 < design.cost <= 12_000_000
    result = run(HIERA, tmp_path / "store.sqlite")
    assert result["epsilon_per_client"] == design.cost / 1e6
    assert result["epsilon_stated"] < 8
    assert result["bytes_per_report"] == 18
    assert result["accuracy"] < result["accuracy_baseline"]  # squared errors
    (question, clients), *rest = make(HIERA).cohorts()
    assert (question.model, question.card, len(clients), rest) == (wire.LINEAR, design.card.data, 4000, [])


def test_a_card_is_for_one_epsilon(tmp_path):
    card = designs_of(Options(), 28)[0].card.data.hex()
    with pytest.raises(UsageError, match="for one epsilon"):
        run(Options(**{**vars(PERSONAL), "card": card}), tmp_path / "store.sqlite")


def test_unequal_classes_of_weights_are_combined_without_bias():
    algorithm = make(
        Options(**{**vars(FEDAVG), "choices": "0.5:4:0.5,1:8:0.5", "weights": "variance", "k": 1})
    )
    for own in algorithm._classes:
        assert own.second_moment == pytest.approx(
            float(certify.moments(own.card).worst_second_moment()) * own.value**2
        )
        assert cards.certify(own.card)
    assert fedavg.most_turns(algorithm._settings, 200) == algorithm.times


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    common = ["train", "--dataset", "synthetic-logistic", "--quiet"]
    fedavg_ = [
        *common,
        "--algorithm",
        "fedavg",
        "--fleet",
        "simulated:100",
        "--rounds",
        "2",
        "--mechanism",
        "pdpm",
    ]
    assert main([*fedavg_, "--choices", "tau", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert [own["tau"] for own in result["classes"]] == [0.125, 0.25, 0.5]
    assert main([*common, "--epsilons", "1:0.5,2:0.5", "--reports", "100", "--fleet", "simulated:100"]) == 0
    assert "50 clients at epsilon 1 a report: 1 in the run" in capsys.readouterr().out
    for wrong, message in (
        ([*fedavg_, "--group", "3"], "--group belongs to fedsgd"),
        ([*common, "--local-epochs", "3"], "--local-epochs belongs to fedavg"),
        ([*common, "--mu", "0.1"], "--mu belongs to hiera"),
        (
            [*common, "--algorithm", "hiera", "--mechanism", "duchi"],
            "--mechanism belongs to fedsgd and fedavg",
        ),
        ([*common, "--algorithm", "hiera", "--budgets", "much"], "are no budgets"),
        ([*fedavg_, "--choices", "tau", "--tau", "1"], "--choices says what --tau says"),
        ([*common, "--epsilons", "1:1", "--epsilon", "1"], "say the same"),
        ([*common, "--card", "some.card", "--levels", "3"], "--card says what --levels says"),
    ):
        assert main(wrong) == 2
        assert message in capsys.readouterr().err
