"""Cards as objects: designed, loaded, certified, and drawn.

A card is an integer table from which a device draws the symbol that it reports instead of a value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tern.card import PROJECTION
from tern.fixed import ONE
from ternhost import extras
from ternhost.api import arguments
from ternhost.errors import UsageError
from ternhost.files import storage_errors, write_file
from ternhost.options import Number, Option
from ternhost.privacy import cards, certify, mechanisms
from ternhost.privacy.base import parse_epsilon
from ternhost.privacy.mechanisms import shipped

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

# The rows of a card in a notebook: a name, and the member of its description.
_ROWS = {
    "certified epsilon": "epsilon_certified",
    "certified rho": "rho_certified",
    "outputs": "levels",
    "worst variance": "worst_case_variance",
    "variance at 0": "variance_at_zero",
    "bias": "bias",
    "bytes": "card_bytes",
    "hash": "card_hash",
}


@dataclass(frozen=True)
class Card:
    """A card, with the properties that follow from its integers.

    - data: its bytes, as devices get them
    - mechanism: the name of the mechanism that designed it; None if it was loaded from a file
    - notes: remarks of the design
    """

    data: bytes
    mechanism: str | None = None
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Raise UsageError for bytes that are no card."""
        if not isinstance(self.data, bytes):
            raise UsageError(f"a card is made of bytes, not of {type(self.data).__name__}")
        cards.decode(self.data)

    def __bytes__(self) -> bytes:
        return self.data

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a card from a file. Raises UsageError for a file that is no card."""
        name = arguments.path(path, "path")
        try:
            return cls(cards.load(name))
        except OSError as error:
            text = f"{name}: {error.strerror}"
            raise UsageError(text, hint="give the path of a card, or design one") from error

    def save(self, path: str | Path) -> Path:
        """Write the card to a file, and return its path. Raises StorageError."""
        file = Path(arguments.path(path, "path"))
        with storage_errors("name another path", f"cannot write {file}"):
            write_file(file, self.data)
        return file

    @property
    def epsilon(self) -> float | None:
        """The epsilon that is certified from the integers; None if the card keeps none up to 20."""
        epsilon: float | None = self.to_dict().get("epsilon_certified")
        return epsilon

    @property
    def variance(self) -> float | None:
        """The largest variance of a reported value; None if its outputs are not unbiased."""
        variance: float | None = self.to_dict()["worst_case_variance"]
        return variance

    def certify(self, epsilon: Number | None = None, rho: Number | None = None) -> Verdict:
        """Prove from the integers of the card whether it keeps a limit, as `tern card certify` does.

        epsilon: the limit; None: what the card claims. rho: the limit of a sum with Gaussian noise,
        which keeps no epsilon. Raises UsageError for a limit in the other measure.
        """
        micro_epsilon = None
        if epsilon is not None:
            micro_epsilon = parse_epsilon(_EPSILON.normalised(epsilon))
        micro_rho = None
        if rho is not None:
            micro_rho = parse_epsilon(_RHO.normalised(rho), option="--rho")
        checked = cards.check(self.data, micro_epsilon, micro_rho)
        return Verdict(bool(checked["certified"]), str(checked["reason"]))

    def distribution(self, value: float) -> pd.Series:
        """Return the probability of each output for an input from -1 to 1. Needs pandas.

        The index has the values that the outputs stand for. Raises UsageError.
        """
        extras.require("pandas")
        import pandas as pd

        number = _VALUE.normalised(value)
        if not -1 <= number <= 1:
            raise UsageError(f"value must be from -1 to 1, not {number:g}")
        card = cards.decode(self.data)
        if card.shape != PROJECTION:
            certify.valued(card)  # raises UsageError for a card whose outputs have no values
        probabilities = cards.distribution(card, round(number * ONE))
        return pd.Series(probabilities, index=cards.output_values(card), name=number)

    def plot(self) -> Figure:
        """Draw the exact distribution of the outputs for some inputs, as `tern card show` does.

        Raises UsageError for a card whose outputs stand for no values.
        """
        from ternhost.plots import cards as plots  # loads matplotlib

        card = cards.decode(self.data)
        if card.shape != PROJECTION:
            certify.valued(card)
        return plots.card_distribution(card, self._title)

    def to_dict(self) -> dict[str, Any]:
        """Return the properties of the card, as `tern card show --json` prints them."""
        description = cards.describe(cards.decode(self.data))
        if self.mechanism is not None:
            description["mechanism"] = self.mechanism
        return description

    @property
    def _title(self) -> str:
        """The card in a line."""
        values = self.to_dict()
        kind = self.mechanism or f"{values['shape']} card"
        if self.epsilon is None:
            return f"{kind}, {values['levels']} outputs"
        return f"{kind}, epsilon {self.epsilon}, {values['levels']} outputs"

    def __repr__(self) -> str:
        values = self.to_dict()
        return f"<Card {values['card_hash']}: {self._title}, {len(self.data)} bytes>"

    def _repr_html_(self) -> str:
        """The card as a table of HTML, which notebooks show."""
        values = self.to_dict()
        rows = ""
        for name, key in _ROWS.items():
            if values.get(key) is not None:
                rows += f"<tr><th>{escape(name)}</th><td>{escape(str(values[key]))}</td></tr>"
        return f"<table><caption>{escape(self._title)}</caption><tbody>{rows}</tbody></table>"


@dataclass(frozen=True)
class Verdict:
    """Whether a card is certified, and the reason in words. It counts as true if it is."""

    certified: bool
    reason: str

    def __bool__(self) -> bool:
        return self.certified


def design(
    mechanism: str,
    epsilon: Number,
    levels: int | None = None,
    options: Mapping[str, Number | bool] | None = None,
) -> Card:
    """Design a certified, exactly unbiased card, as `tern card design` does.

    mechanism: three-outputs, pm-sub, auto or another of `list_cards`. levels: the number of
    outputs, if the mechanism leaves a choice. options: the mechanism's own, by name. Raises
    UsageError.
    """
    designed = mechanisms.design(
        _MECHANISM.normalised(mechanism),
        _EPSILON.normalised(epsilon),
        _LEVELS.normalised(levels),
        **_options(mechanism, options),
    )
    return Card(designed.card, designed.mechanism, designed.notes)


def list_cards() -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
    """Return the names of the mechanisms, and the cards that come with tern, as `tern card list`."""
    return tuple(mechanisms.NAMES), tuple(shipped.entries())


def _options(mechanism: str, options: Mapping[str, Number | bool] | None) -> dict[str, Any]:
    """Return the options of a mechanism in their types. Raises UsageError."""
    if options is None:
        return {}
    if not isinstance(options, Mapping):
        raise UsageError(f"options must be a mapping, not {type(options).__name__}")
    values: dict[str, Any] = {}
    for name, value in options.items():
        declared = mechanisms.option(mechanism, str(name))
        if isinstance(value, str):
            values[declared.name] = declared.read(value)
        else:
            values[declared.name] = declared.normalised(value)
    return values


# The parameters of these functions, which bring values into their types.
_MECHANISM = Option("mechanism", "", default="")
_EPSILON = Option("epsilon", "", default="")
_RHO = Option("rho", "", default="")
_LEVELS = Option("levels", "", type=int)
_VALUE = Option("value", "", type=float, default=0.0)
