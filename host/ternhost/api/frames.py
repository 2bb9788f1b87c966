"""Tables as data frames of pandas, which is an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ternhost import extras

if TYPE_CHECKING:
    import pandas as pd


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a table of pandas. Raises UsageError if pandas is not installed."""
    extras.require("pandas")
    import pandas as pd

    return pd.DataFrame(list(rows))
