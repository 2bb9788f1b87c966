"""The command of gateways, as `tern --help` lists it."""

from ternhost.command import ListedCommand

GATEWAY = ListedCommand(
    name="gateway",
    heading="Fleets",
    summary="gateways of sites, which keep the keys of their devices and send only counts",
    place="terngateway.commands",
    verbs=("init", "remove", "server", "run", "status"),
)
