"""The tables about learning in the README and the guides: which run each of their figures is of.

`TABLES` has each table by the name of its mark in a page, `<!-- measured: NAME -->`. Its cells are
texts, or a `Figure` that `python docs/measure.py` computes.
"""

from dataclasses import dataclass

import simulated_runs as runs
import unequal_boards

AUC, ACCURACY, LOG_LOSS, SQUARED_ERROR = "auc", "accuracy", "log_loss", "squared_error"
ACCURACY_OR_AUC = {"flights-planned": AUC, "flights": AUC, "synthetic-logistic": ACCURACY}


@dataclass(frozen=True)
class Figure:
    """A cell that is measured: the mean over the seeds, and its standard error.

    - name: of the figure, in the row that the run returns
    - run: a function of `simulated_runs`
    - arguments: its arguments but the seed, as pairs of a name and a value
    - digits: after the point
    - is_share: whether it is shown in per cent
    - is_fixed: whether it has nothing random, so that it is computed once and has no error
    """

    name: str
    run: object
    arguments: tuple = ()
    digits: int = 3
    is_share: bool = False
    is_fixed: bool = False

    def in_words(self, mean, error):
        """Return the text of the cell."""
        unit, scale, digits = "", 1, self.digits
        if self.is_share:
            unit, scale, digits = " %", 100, 1
        text = f"{scale * mean:.{digits}f}{unit}"
        if self.is_fixed:
            return text
        return f"{text} ({scale * error:.{digits}f})"


@dataclass(frozen=True)
class LearningTable:
    """A table of a page.

    - headings: of its columns
    - rows: lists of texts and figures, as many as there are headings
    - how: what the figures are of, beside their commands
    """

    headings: tuple
    rows: tuple
    how: str = ""

    @property
    def figures(self):
        """All figures, row by row."""
        return [cell for row in self.rows for cell in row if isinstance(cell, Figure)]

    @property
    def commands(self):
        """The commands whose results are figures of the table, without --seed, each once."""
        commands = {}  # a dictionary keeps their order
        for figure in self.figures:
            arguments = dict(figure.arguments)
            if "command" in arguments:
                commands[arguments["command"]] = None
        return [*commands]


def of_command(command, name, **more):
    """Return a figure of the model that a command trains, or of its inference."""
    return Figure(name, runs.of_command, (("command", command),), **more)


def of_simulated(learner, data, devices, epsilon, more="", name=None, **options):
    """Return a figure of a training in which each simulated device sends one report.

    learner: its name; empty for the one that tern chooses. more: further options of the command.
    name: of the figure; by default the most telling one of the data set.
    """
    words = f"train {learner} --data {data} --epsilon {epsilon} --fleet simulated:{devices} {more}"
    command = f"{words} --reports {devices}"
    return of_command(" ".join(command.split()), name or ACCURACY_OR_AUC[data], **options)


def optimum_of(data, name, **options):
    """Return a figure of the model without privacy, from all records of a data set."""
    return Figure(name, runs.without_privacy, (("data", data),), is_fixed=True, **options)


def _thousands(devices):
    return f"{devices:,}"


def accuracy_by_epsilon():
    epsilons = ("0.5", "1", "2", "4", "8")
    rows = []
    for devices in (10_000, 100_000, 1_000_000):
        figures = [of_simulated("", "flights-planned", devices, each) for each in epsilons]
        rows.append((_thousands(devices), *figures))
    headings = ("devices", "AUC at epsilon 0.5", *(f"at epsilon {each}" for each in epsilons[1:]))
    return LearningTable(headings, tuple(rows))


def one_answer_or_many_rounds():
    epsilons = ("0.5", "1", "2", "4")
    rows = []
    for data, devices in (
        ("flights-planned", 20_000),
        ("flights-planned", 100_000),
        ("synthetic-logistic", 20_000),
    ):
        name = ACCURACY_OR_AUC[data]
        for learner, chosen in (("fedsgd", "fedsgd"), ("direct", "")):
            figures = [of_simulated(chosen, data, devices, each) for each in epsilons]
            first = (f"{data}, {_thousands(devices)}", f"`{learner}`")
            rows.append((*first, *figures, optimum_of(data, name)))
    columns = [f"epsilon {each}" for each in epsilons]
    headings = ("data set, devices", "learner", *columns, "without privacy")
    return LearningTable(headings, tuple(rows))


def public_rows_from_elsewhere():
    epsilons = ("0.5", "1", "4")
    rows = []
    for words, learner, more in (
        ("of the same flights", "", ""),
        ("of flights in winter", "direct", "--public winter.csv"),
        ("of flights after 5 pm", "direct", "--public evening.csv"),
        ("none (`--public none`)", "direct", "--public none"),
    ):
        figures = []
        for epsilon in epsilons:
            figures.append(of_simulated(learner, "flights-planned", 20_000, epsilon, more))
        rows.append((words, *figures))
    headings = ("which public rows", "AUC at epsilon 0.5", "at epsilon 1", "at epsilon 4")
    how = "winter.csv and evening.csv: 1,000 of these flights, others for each seed."
    return LearningTable(headings, tuple(rows), how)


def then_by_descent():
    rows = []
    for data, devices, words, more in (
        ("flights-planned", 1_000_000, "none (`--public none`)", "--public none"),
        ("flights-planned", 1_000_000, "1,000 of the same flights", ""),
        ("flights-planned", 290_000, "1,000 of flights in winter", "--public winter.csv"),
        ("synthetic-logistic", 290_000, "none (`--public none`)", "--public none"),
    ):
        figures = []
        for name in (AUC, LOG_LOSS):
            for then in ("none", "fedsgd"):
                options = f"{more} --then {then}"
                figures.append(of_simulated("direct", data, devices, "4", options, name))
        rows.append((f"{data}, {_thousands(devices)}", words, *figures))
    headings = (
        "data set, devices",
        "public rows",
        "AUC: one answer",
        "AUC: then fedsgd",
        "log-loss: one answer",
        "log-loss: then fedsgd",
    )
    return LearningTable(headings, tuple(rows))


def local_rate():
    rates = ("0", "1", "2")
    rows = []
    for data in ("flights", "flights-planned", "synthetic-logistic"):
        figures = []
        for rate in rates:
            command = (
                f"train fedavg --data {data} --epsilon 8 --fleet simulated:1000 --local-rate {rate}"
            )
            figures.append(of_command(command, AUC))
        rows.append((data, *figures))
    headings = (
        "data set",
        "AUC at rate 2^0 (`--local-rate 0`)",
        "at rate 2^-1 (`--local-rate 1`)",
        "at rate 2^-2 (`--local-rate 2`)",
    )
    return LearningTable(headings, tuple(rows))


def local_classes():
    rows = []
    for words, more in (("once", ""), ("in all 20 rounds", " --share 1")):
        figures = []
        for epsilon in ("8", "20"):
            command = (
                f"train fedavg --data digits --model softmax --epsilon {epsilon} "
                f"--fleet simulated:539 --records 2{more}"
            )
            figures.append(of_command(command, ACCURACY))
        rows.append((words, *figures))
    headings = (
        "how often each device reports",
        "accuracy at epsilon 8 for a report",
        "at epsilon 20 for a report",
    )
    return LearningTable(headings, tuple(rows))


def range_of_values():
    epsilons = ("0.5", "1", "2", "4")
    rows = []
    for data, name, words, digits in (
        ("synthetic-logistic", ACCURACY, "accuracy", 3),
        ("flights-planned", AUC, "AUC", 3),
        ("synthetic-linear", SQUARED_ERROR, "squared error", 4),
    ):
        for chosen, more in (("none", "--clip 0"), ("tern's", "")):
            figures = []
            for each in epsilons:
                figures.append(
                    of_simulated("fedsgd", data, 20_000, each, more, name, digits=digits)
                )
            rows.append((data, words, chosen, *figures, optimum_of(data, name, digits=digits)))
    columns = [f"epsilon {each}" for each in epsilons]
    headings = ("data set", "figure", "range", *columns, "without privacy")
    return LearningTable(headings, tuple(rows))


def lives():
    data = "synthetic-logistic"

    def years(every, run_epsilon, devices):
        """Return the accuracy after a year of rounds."""
        arguments = (
            ("data", data),
            ("every", every),
            ("run_epsilon", run_epsilon),
            ("devices", devices),
        )
        return _thousands(devices), Figure(ACCURACY, runs.of_years, arguments)

    def sums(devices, run_epsilon, unit="record"):
        """Return the last cells of a row about a training that protects records or runs of them."""
        command = (
            f"train --data {data} --fleet simulated:{devices} --records 500 --unit {unit} "
            f"--run-epsilon {run_epsilon} --public none"
        )
        number_of_rounds = of_command(command, "rounds", digits=0, is_fixed=True)
        return number_of_rounds, "", _thousands(devices), of_command(command, ACCURACY)

    day, hour = "365: one a day for a year", "8,766: one an hour for a year"
    in_rho = "(10, 1e-6) in rho"
    # 365 reports at the epsilon that a budget of (2.5458, 1e-6) in rho gives them add up to 10.
    rows = (
        ("device", "epsilon 4", "1", "4", "5,000", of_simulated("", data, 5_000, "4")),
        ("device", "epsilon 10", day, "0.0274", *years("1d", "2.5458", 200_000)),
        ("device", in_rho, day, "0.0918", *years("1d", "10", 20_000)),
        ("device", in_rho, hour, "0.0187", *years("1h", "10", 20_000)),
        ("record, 500 of each device", "(1, 1e-6) in rho", *sums(2, "1")),
        ("record, 500 of each device", "(0.5, 1e-6) in rho", *sums(5, "0.5")),
        (
            "run of 60 records, 500 of each device",
            "(4, 1e-6) in rho",
            *sums(3, "4", "60"),
        ),
    )
    headings = (
        "unit",
        "budget",
        "number of rounds",
        "epsilon of a report (empty: a sum with noise)",
        "devices",
        "accuracy",
    )
    how = "The rows of a year are simulated as in tern plan --years 1."
    return LearningTable(headings, rows, how)


def twenty_boards():
    data, fleet = "flights-planned", "--fleet simulated:20"
    of_boards = f"train --data {data} {fleet} --records 500 --unit record"
    epsilons = ("1", "4")

    def both(run, arguments, **options):
        """Return the AUC and the log-loss of the same run."""
        return [Figure(name, run, arguments, 4, **options) for name in (AUC, LOG_LOSS)]

    rows = []
    for words, more in (
        ("a record", ""),
        ("a record, without public rows (`--public none`)", " --public none"),
        ("a record, with 2,000 public rows (`--public 2000`)", " --public 2000"),
    ):
        figures = []
        for epsilon in epsilons:
            command = f"{of_boards} --run-epsilon {epsilon}{more}"
            figures += both(runs.of_command, (("command", command),))
        rows.append((words, *figures))

    figures = []
    for epsilon in epsilons:
        for name in (AUC, LOG_LOSS):
            figure = of_simulated("", data, 20, epsilon, "--records 500", name=name, digits=4)
            figures.append(figure)
    rows.append(("the whole device, one report of each", *figures))
    same = both(runs.without_privacy_on_boards, (("command", f"{of_boards} --public none"),))
    rows.append(("nothing: the same records without privacy", *same, *same))
    guessing = both(runs.without_features, (("data", data),), is_fixed=True)
    rows.append(("everything: guessing, by the shares of the classes", *guessing, *guessing))
    headings = (
        "what is protected, and how",
        "AUC at epsilon 1",
        "log-loss at epsilon 1",
        "AUC at epsilon 4",
        "log-loss at epsilon 4",
    )
    return LearningTable(headings, tuple(rows))


def many_records_same_total():
    """The same number of records, dealt to fewer and fewer devices."""
    rows = []
    for devices, records in ((10_000, 1), (1_000, 10), (100, 100), (20, 500), (5, 2_000)):
        of_device = f"--records {records}" if records > 1 else ""
        figures = []
        for name in (AUC, LOG_LOSS):
            figures.append(of_simulated("", "flights-planned", devices, "4", of_device, name=name))
        rows.append((_thousands(devices), f"{records:,}", *figures))
    headings = ("devices", "records of each device", "AUC", "log-loss")
    return LearningTable(headings, tuple(rows))


def split_budgets():
    """The epsilon of a device's life, spent on one report or divided among several."""
    devices = 100
    rows = []
    for epsilon in (4, 8, 16):
        figures = []
        for reports in (1, 2, 4):
            of_fleet = f"--fleet simulated:{devices} --records 500 --reports {reports * devices}"
            command = (
                f"train direct --data flights-planned --epsilon {epsilon // reports} {of_fleet}"
            )
            figures.append(of_command(command, AUC, digits=4))
        rows.append((str(epsilon), *figures))
    headings = ("epsilon for life", "one report", "two reports", "four reports")
    return LearningTable(headings, tuple(rows))


def demo():
    def warned(job, **options):
        """Return the share of the warned flights that were late."""
        return Figure("warned", runs.of_demo, (("job", job),), is_share=True, **options)

    guessing = Figure(
        "share",
        runs.share_of_the_positive,
        (("data", "flights-planned"),),
        is_share=True,
        is_fixed=True,
    )
    data = "--data flights-planned --records 500"
    command = f"train {data} --epsilon 4 --fleet simulated:20 --reports 20"
    arguments = (("command", command),)
    of_whole_boards = Figure("warned", runs.warned_by_command, arguments, is_share=True)
    rows = (
        ("nobody: guessing", "everything", guessing),
        ("20,000 devices with one flight each", "the device, with epsilon 4", warned("devices")),
        (
            "20 boards with 500 flights each",
            "one flight, with epsilon 1 for all reports",
            warned("boards"),
        ),
        ("20 boards with 500 flights each", "the board, with epsilon 4", of_whole_boards),
        ("one computer with all flights", "nothing", warned("", is_fixed=True)),
    )
    headings = ("who learns", "what is protected", "warned flights that were late")
    how = "The two jobs of tern demo, on simulated devices, and one report of each of 20 boards."
    return LearningTable(headings, rows, how)


def inference():
    rows = []
    for data, words, devices, epsilons in (
        ("digits", "digits, 10 classes", 898, ("1", "2", "4", "8")),
        ("iris", "iris, 3 classes", 75, ("1", "4")),
    ):
        for epsilon in epsilons:
            figures = []
            for answer in ("label", "vector"):
                command = (
                    f"infer --data {data} --epsilon {epsilon} --answer {answer} "
                    f"--fleet simulated:{devices}"
                )
                figures.append(of_command(command, "agreement"))
            rows.append((words, str(devices), epsilon, *figures))
    headings = (
        "data",
        "devices",
        "epsilon",
        "share that report their class, with `label`",
        "same share, with `vector`",
    )
    return LearningTable(headings, tuple(rows))


def scores():
    models, devices = 5, 179
    training = (("data", "digits"), ("model", "softmax"), ("epsilon", 4), ("reports", 100_000))

    def score(name, number, epsilon, digits=2):
        """Return a figure of the model of this number, scored at this epsilon."""
        arguments = (
            ("train_options", training),
            ("epsilon", epsilon),
            ("models", models),
            ("devices", devices),
        )
        return Figure(f"{name}_{number}", runs.of_scores, arguments, digits)

    rows = []
    for number, after_round in enumerate(("1", "26", "51", "75", "100"), start=1):
        loss = score("loss", number, "20")
        exact = score("score_without_noise", number, "20")
        noisy = [score("score", number, epsilon) for epsilon in ("20", "8")]
        rows.append((after_round, loss, exact, *noisy))
    headings = (
        "model after round",
        "log-loss",
        "score without noise",
        "score at epsilon 20",
        "score at epsilon 8",
    )
    how = "tern train --data digits --model softmax --epsilon 4, 100,000 reports; then the infer above."
    return LearningTable(headings, tuple(rows), how)


def activity_accuracy():
    budgets = ("1", "4", "8")
    cases = {"256": (256, 47), "640": (640, 47), "640, a window as unit": (640, 1)}
    arguments = (("cases", tuple(cases.values())), ("budgets", budgets))
    rows = []
    for words, (windows, unit) in cases.items():
        figures = []
        for budget in budgets:
            name = f"accuracy_{windows}_{unit}_{budget}"
            figures.append(Figure(name, runs.of_wearers_minutes, arguments))
        rows.append((words, *figures))
    headings = ("windows of a board", *(f"({each}, 1e-6)" for each in budgets))
    how = (
        "Simulated boards with people of examples/activity/sensor.py: twenty others for each seed. "
        "Another day judges."
    )
    return LearningTable(headings, tuple(rows), how)


def activity_wearer():
    arguments = (("count", 2_000), ("windows_of_board", 32), ("epsilon", "4"))
    figure = Figure(ACCURACY, runs.of_wearers, arguments)
    headings = ("people", "reports of each person's board", "accuracy")
    how = (
        "People of examples/activity/sensor.py with 32 windows each, the same ones for each seed; "
        "20 reports a round, with --batch 32 --clip 5. Another day judges."
    )
    return LearningTable(headings, (("2,000", "1", figure),), how)


def activity_device():
    epsilons = ("4", "8")
    arguments = (("windows_of_board", 640), ("epsilons", epsilons))

    def accuracy(case):
        """Return the cell of a case of `simulated_runs.of_whole_wearers`."""
        return Figure(f"accuracy_{case}", runs.of_whole_wearers, arguments)

    rows = []
    for epsilon in epsilons:
        for learner in ("direct", "fedsgd"):
            what = "the wearer: all windows of a board"
            rows.append((what, epsilon, f"`{learner}`", accuracy(f"{learner}_{epsilon}")))
    rows += [
        ("a run of 47 windows, about a minute", "4, at delta 1e-6", "`fedsum`", accuracy("minute")),
        ("everything: always the most frequent activity", "", "", accuracy("none")),
    ]
    headings = ("what is protected", "epsilon", "learner", "accuracy")
    how = (
        "Simulated boards with people of examples/activity/sensor.py, 640 windows each: twenty "
        "others for every four seeds. One report of each about all its windows. Another day judges."
    )
    return LearningTable(headings, tuple(rows), how)


def toward_server_models():
    rows = []
    for devices in (300, 1_000, 3_000):
        figures = []
        for toward_server, reports in ((True, 20), (True, 1), (False, 1)):
            arguments = (
                ("data", "flights-planned"),
                ("devices", devices),
                ("toward_server", toward_server),
                ("reports", reports),
            )
            figures.append(Figure(AUC, runs.behind_gateways, arguments))
        rows.append((_thousands(devices), *figures))
    headings = (
        "devices at each of three sites",
        "AUC with `--toward-server 1`, 20 reports of each device",
        "AUC with `--toward-server 1`, one report of each device",
        "AUC with one report of epsilon 1",
    )
    return LearningTable(headings, tuple(rows), "The trainings of tern papers gateways.")


def bias_of_clipping():
    rows = []
    for records in (2, 5, 20, 250, 500):
        figures = []
        for name in ("radius", "bias", "bound", "relative_bias", "left"):
            arguments = (("records", records), ("questions", 1))
            figures.append(Figure(name, runs.bias_of_clipping, arguments))
        for name in ("left", AUC, "mean_label"):
            arguments = (("records", records), ("questions", 6))
            figures.append(Figure(name, runs.bias_of_clipping, arguments))
        rows.append((str(records), *figures))
    headings = (
        "records of a device",
        "R",
        "bias / R",
        "bound / R",
        "bias / length of the mean",
        "left after one question",
        "after six",
        "AUC after six",
        "share of late flights by this model",
    )
    how = "The questions of tern train direct --data flights-planned, without noise."
    return LearningTable(headings, tuple(rows), how)


def toward_server_others():
    rows = []
    for data, name in (("synthetic-logistic", ACCURACY), ("flights", AUC)):
        figures = []
        for reports in (20, 1):
            arguments = (
                ("data", data),
                ("devices", 1_000),
                ("toward_server", True),
                ("reports", reports),
            )
            figures.append(Figure(name, runs.behind_gateways, arguments))
        words = {ACCURACY: "accuracy", AUC: "AUC"}
        rows.append((data, words[name], *figures))
    headings = ("data set", "figure", "20 reports of each device", "one report of each device")
    return LearningTable(headings, tuple(rows), "With 1,000 devices at each of three sites.")


def toward_server_epsilons():
    rows = []
    for devices in (300, 1_000, 3_000):
        figures = []
        for reports in (20, 1):
            arguments = (("devices", devices), ("reports", reports))
            run = runs.epsilons_behind_gateways
            figures.append(Figure("epsilon", run, arguments, digits=2, is_fixed=True))
            if reports > 1:
                figures.append(Figure("local_epsilon", run, arguments, digits=1, is_fixed=True))
        rows.append((_thousands(devices), *figures))
    headings = (
        "devices at each site",
        "epsilon of each of 20 reports",
        "epsilon of all 20 reports",
        "epsilon of a single report",
    )
    return LearningTable(headings, tuple(rows), "The epsilons that --toward-server 1 chooses.")


# Boards that each hold many records, and report once: how many boards, and records of each.
MANY = ((20, 500), (100, 500), (300, 250))
BREAKS_AT = ((20, 500, "4"), (100, 500, "1"), (300, 250, "1"))  # the last is epsilon
SHARE_OF_LATE = "0.237"  # of all flights, as the page on data sets says


def _of_boards(boards, records, more, learner=""):
    """Return the command that trains with boards of many records of flights-planned."""
    words = (
        f"train {learner} --data flights-planned --fleet simulated:{boards} "
        f"--records {records} {more}"
    )
    return " ".join(words.split())


def _both(command):
    """Return the AUC and the log-loss of the model that a command trains."""
    return [of_command(command, name) for name in (AUC, LOG_LOSS)]


def many_records():
    epsilons = {(20, 500): ("1", "4", "8"), (100, 500): ("1", "4"), (300, 250): ("0.5", "1", "4")}
    rows = []
    for boards, records in MANY:
        same_boards = _of_boards(boards, records, "--unit record --run-epsilon 1 --public none")
        arguments = (("command", same_boards),)
        without_privacy = []
        for name in (AUC, LOG_LOSS):
            without_privacy.append(Figure(name, runs.without_privacy_on_boards, arguments))
        for epsilon in epsilons[boards, records]:
            device = _both(_of_boards(boards, records, f"--epsilon {epsilon}"))
            record = ["", ""]
            if epsilon in ("1", "4"):
                more = f"--unit record --run-epsilon {epsilon}"
                record = _both(_of_boards(boards, records, more))
            first = (f"{_thousands(boards)} x {records}", epsilon)
            rows.append((*first, *device, *record, *without_privacy))
    single = of_simulated("", "flights-planned", 20_000, "1")
    loss_of_single = of_simulated("", "flights-planned", 20_000, "1", name=LOG_LOSS)
    rows.append(("20,000 x 1", "1", single, loss_of_single, "", "", "", ""))
    headings = (
        "devices x records of each",
        "epsilon",
        "device protected, one report of each: AUC",
        "log-loss",
        "record protected, at (epsilon, 1e-6) for all reports of a board: AUC",
        "log-loss",
        "the same records without privacy: AUC",
        "log-loss",
    )
    return LearningTable(headings, tuple(rows))


def same_boards_both_units():
    rows = []
    for boards, records, epsilon in ((20, 500, "4"), (100, 500, "1"), (100, 500, "4")):
        device = _of_boards(boards, records, f"--epsilon {epsilon}")
        record = _of_boards(boards, records, f"--unit record --run-epsilon {epsilon}")
        figures = [of_command(command, AUC) for command in (device, record)]
        rows.append((f"{boards} with {records} flights each", epsilon, *figures))
    headings = ("devices", "epsilon", "AUC with the unit device", "AUC with the unit record")
    return LearningTable(headings, tuple(rows))


def many_records_share():
    cells = (
        (20, 500, "4"),
        (20, 500, "8"),
        (100, 500, "1"),
        (100, 500, "4"),
        (300, 250, "0.5"),
        (300, 250, "1"),
    )
    rows = []
    for boards, records, epsilon in cells:
        figures = []
        for learner, more in (
            ("", f" --share-of-positives {SHARE_OF_LATE}"),
            ("", ""),
            ("direct", " --public flights.csv"),
            ("direct", " --public none"),
        ):
            command = _of_boards(boards, records, f"--epsilon {epsilon}{more}", learner)
            figures += _both(command)
        rows.append((f"{boards} x {records}", epsilon, *figures))
    headings = (
        "devices x records of each",
        "epsilon",
        "share named, public rows: AUC",
        "log-loss",
        "share by the labels of public rows: AUC",
        "log-loss",
        "share asked, public rows without labels: AUC",
        "log-loss",
        "share asked, no public rows: AUC",
        "log-loss",
    )
    how = "flights.csv: features of 1,000 of these flights, others for each seed."
    return LearningTable(headings, tuple(rows), how)


def _of_unequal_boards(kind, more=(), divisor=1, months=()):
    """Return the cells of a row: AUC and log-loss for each of BREAKS_AT.

    kind: the function of `unequal_boards` that makes the fleet. more: its further arguments, as pairs.
    divisor: by which the records of a board are divided to be named as --records; None: no number is
    named. months: that judge the model; empty for all.
    """
    cells = []
    for boards, records, epsilon in BREAKS_AT:
        bound = None
        if divisor is not None:
            bound = records // divisor
        arguments = (
            ("kind", kind),
            ("more", more),
            ("boards", boards),
            ("records", records),
            ("epsilon", epsilon),
            ("bound", bound),
            ("months", months),
        )
        for name in (AUC, LOG_LOSS):
            cells.append(Figure(name, runs.of_unequal_boards, arguments))
    return cells


def _of_random_records(more="", learner=""):
    """Return the cells of a row: of boards with random records. more: options of the command."""
    cells = []
    for boards, records, epsilon in BREAKS_AT:
        options = f"--epsilon {epsilon} {more}"
        cells += _both(_of_boards(boards, records, options, learner))
    return cells


def many_records_breaks():
    """Return the table of fleets that are not of random records, and of public rows of others."""
    one_carrier = unequal_boards.of_one_carrier
    shares = unequal_boards.of_different_shares
    in_order = unequal_boards.in_order_of_time
    at_random = unequal_boards.of_random_records
    repeated = unequal_boards.of_repeated_records
    numbers = unequal_boards.of_different_numbers
    last = unequal_boards.LAST_MONTHS
    ten, fifty = (("times", 10),), (("times", 50),)

    cells_of_rows = {
        "random records": _of_random_records(),
        "flights of one airline on each": _of_unequal_boards(one_carrier),
        "shares of late flights from 0.1 to 0.5": _of_unequal_boards(shares),
        "each board the flights of about a month": _of_unequal_boards(in_order),
        "the same, judged by November and December": _of_unequal_boards(in_order, months=last),
        "random records, judged by November and December": _of_unequal_boards(
            at_random, months=last
        ),
        "each record 10 times": _of_unequal_boards(repeated, ten),
        "the same, with `--records` of a tenth": _of_unequal_boards(repeated, ten, divisor=10),
        "each record 50 times": _of_unequal_boards(repeated, fifty),
        "the same, with `--records` of a fiftieth": _of_unequal_boards(repeated, fifty, divisor=50),
        "half of the boards with 20 records, classes by their numbers": _of_unequal_boards(
            numbers, divisor=None
        ),
        "the same, as one class": _of_unequal_boards(numbers),
    }
    files = {
        "public rows of these flights without labels": "flights.csv",
        "public rows of winter": "winter.csv",
        "public rows after 5 pm": "evening.csv",
        "public rows times 0.1": "tenth.csv",
    }
    for what, file in files.items():
        cells = _of_random_records(f"--public {file}", "direct")
        cells_of_rows[f"random records, {what}"] = cells

    headings = ["what the boards hold"]
    for boards, records, epsilon in BREAKS_AT:
        headings += [f"{boards} x {records}, epsilon {epsilon}: AUC", "log-loss"]
    rows = [(what, *cells) for what, cells in cells_of_rows.items()]
    how = (
        "The fleets of docs/unequal_boards.py; the files have 1,000 flights, others for each seed."
    )
    return LearningTable(tuple(headings), tuple(rows), how)


TABLES = {
    "demo": demo(),
    "accuracy-by-epsilon": accuracy_by_epsilon(),
    "one-answer-or-many-rounds": one_answer_or_many_rounds(),
    "public-rows-from-elsewhere": public_rows_from_elsewhere(),
    "then-by-descent": then_by_descent(),
    "bias-of-clipping": bias_of_clipping(),
    "range": range_of_values(),
    "local-rate": local_rate(),
    "local-classes": local_classes(),
    "lives": lives(),
    "twenty-boards": twenty_boards(),
    "many-records-same-total": many_records_same_total(),
    "many-records": many_records(),
    "same-boards-both-units": same_boards_both_units(),
    "many-records-share": many_records_share(),
    "many-records-breaks": many_records_breaks(),
    "split-budgets": split_budgets(),
    "toward-server-models": toward_server_models(),
    "toward-server-epsilons": toward_server_epsilons(),
    "toward-server-others": toward_server_others(),
    "inference": inference(),
    "scores": scores(),
    "activity-accuracy": activity_accuracy(),
    "activity-wearer": activity_wearer(),
    "activity-device": activity_device(),
}
