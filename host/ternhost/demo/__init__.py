"""The demo: two ways of learning in private which flights will be late, through emulated boards.

20,000 devices have one flight each, and hide everything that they hold. Twenty boards have hundreds
of flights each, and hide every single one. Both are compared with no privacy, and with guessing.
"""

from ternhost.demo.jobs import Demo, run

__all__ = ["Demo", "run"]
