"""The host's commands, as `tern --help` lists them."""

from importlib.metadata import entry_points

from ternhost.command import CommandGroup, ListedCommand

TRAIN = ListedCommand(
    name="train",
    heading="Learn",
    summary="train a model on a fleet under local differential privacy",
    place="ternhost.cli.running:TRAIN",
)
COLLECT = ListedCommand(
    name="collect",
    heading="Learn",
    summary=(
        "estimate means, frequencies and quantiles of attributes under local differential privacy"
    ),
    place="ternhost.cli.running:COLLECT",
)
INFER = ListedCommand(
    name="infer",
    heading="Learn",
    summary=(
        "classify records on the devices, and collect the results under local differential privacy"
    ),
    place="ternhost.cli.running:INFER",
)
SERVE = ListedCommand(
    name="serve",
    heading="Learn",
    summary="run rounds for a fleet on a schedule, until Ctrl-C",
    place="ternhost.cli.serve",
)
RESUME = ListedCommand(
    name="resume",
    heading="Learn",
    summary="go on with a run that was interrupted, with the options that it began with",
    place="ternhost.cli.resume",
)
PLAN = ListedCommand(
    name="plan",
    heading="Learn",
    summary=(
        "estimate how many devices a good model or an exact statistic needs, or what yours can"
        " learn"
    ),
    place="ternhost.cli.plan",
)
RUNS = ListedCommand(
    name="runs",
    heading="Learn",
    summary=(
        "list the runs in a directory or a store, oldest first; draw a report again; show a model"
    ),
    place="ternhost.cli.runs",
)
BROKER = ListedCommand(
    name="broker",
    heading="Fleets",
    summary="the broker of boards with a network",
    place="ternhost.reach.broker.commands",
    verbs=("config", "site", "run"),
)
BACKUP = ListedCommand(
    name="backup",
    heading="Fleets",
    summary="back up what a host needs to continue elsewhere, and restore it",
    place="ternhost.backup.command",
    verbs=("save", "restore"),
)
CARD = ListedCommand(
    name="card",
    heading="Mechanisms",
    summary="design, certify and show cards, the integer tables of mechanisms",
    place="ternhost.cli.card",
    verbs=("list", "design", "show", "certify", "account"),
)
WATCH = ListedCommand(
    name="watch",
    heading="Look",
    summary="show a run and its fleet in the terminal, until Ctrl-C",
    place="ternhost.watch.watch_command",
)
DASHBOARD = ListedCommand(
    name="dashboard",
    heading="Look",
    summary="show a run in the browser of this machine, during the run or afterwards",
    place="ternhost.watch.dashboard_command",
)
PRIVACY = ListedCommand(
    name="privacy",
    heading="Look",
    summary=(
        "write what a run, a store or a board promises, as a page for people who are no engineers"
    ),
    place="ternhost.cli.privacy",
)
DEMO = ListedCommand(
    name="demo",
    heading="Set up",
    summary="learn through emulated boards which flights will be late, and what privacy costs",
    place="ternhost.cli.demo",
)
SERVICE = ListedCommand(
    name="service",
    heading="Set up",
    summary="run a command that lasts, such as 'tern serve', as a service of systemd",
    place="ternhost.service.commands",
    verbs=("install", "show"),
)
DATA = CommandGroup(
    name="data",
    heading="Set up",
    summary="describe your own data, and prepare that of sensors",
    example="tern data describe my.csv",
    verbs={
        "describe": "ternhost.cli.data",
        **{each.name: each.value for each in entry_points(group="tern.data_verbs")},
    },
)
CONFIG = ListedCommand(
    name="config",
    heading="Set up",
    summary="show which options are in force, and what sets them: a default or tern.toml",
    place="ternhost.cli.config",
)
CACHE = ListedCommand(
    name="cache",
    heading="Set up",
    summary="show what tern keeps between commands, and its size; clear it",
    place="ternhost.cli.cache",
)
