"""The command of the papers, as `tern --help` lists it."""

from ternhost.command import ListedCommand

PAPERS = ListedCommand(
    name="papers",
    heading="Papers",
    summary="repeat an experiment of the papers; write CSV, JSON and PNG",
    place="ternpapers.command",
)
