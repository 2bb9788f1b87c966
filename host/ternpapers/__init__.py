"""The papers: their mechanisms and learners, which are here to be compared with, and their experiments.

Everything registers itself by entry points: mechanisms, learners, data sets and the command
`tern papers`. The core, `ternhost`, does not know this package.
"""

from ternhost import device_library

device_library.provide(__name__)
