"""`python -m ternhost`: the same as `tern`."""

import sys

from ternhost.cli import main

sys.exit(main())
