"""Meters by name: ways to find the energy of a report, each in a file of its own.

A new meter is a class derived from `base.Meter` and a line in the table below. Another package adds
one by an entry point of the group `tern.meters`, and a program by a call of `METERS.register`.
"""

from typing import TYPE_CHECKING

from ternhost.registry import Registry

if TYPE_CHECKING:
    from ternbench.meters.base import Meter

METERS: "Registry[type[Meter]]" = Registry(
    "meter",
    "tern.meters",
    {
        "ppk2": "ternbench.meters.ppk2:Ppk2",
        "joulescope": "ternbench.meters.joulescope:Joulescope",
        "ina226": "ternbench.meters.ina:Ina226",
        "ina228": "ternbench.meters.ina:Ina228",
        "csv": "ternbench.meters.csv:CsvExport",
        "jls": "ternbench.meters.jls:JlsRecording",
        "model": "ternbench.meters.model:DatasheetModel",
    },
)
