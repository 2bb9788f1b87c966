"""Which records of a table a run uses, which device holds each, and which of them judge models."""

from dataclasses import dataclass

from ternhost.errors import UsageError


@dataclass(frozen=True)
class Selection:
    """What the options --by, --time and --held-out say; empty values say nothing.

    - by: the column that names the device of a record
    - time: the column by which the records of a device are ordered
    - held_out: the share of the records that no device holds, and that judge models
    """

    by: str = ""
    time: str = ""
    held_out: float | None = None

    def require_no_columns(self, name: str) -> None:
        """Raise UsageError for columns, which only tables of the user's own have.

        name: that of a data set.
        """
        for option, column in {"--by": self.by, "--time": self.time}.items():
            if column:
                text = f"{option} {column} names a column, and the data set {name} has none"
                raise UsageError(text, "leave it out, or name a table: --data FILE.csv")


EVERYTHING = Selection()  # records as the data set says
