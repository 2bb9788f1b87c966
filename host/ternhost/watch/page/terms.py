"""What the words on the page mean, for somebody who sees it for the first time."""

from ternhost.text import as_html

# Each word as the page writes it. A column or a tile whose name is here explains itself on hover, and
# all of them stand under the sections, since a phone has no hover.
TERMS = {
    "round": "One question to a group of devices, and their answers.",
    "report": "A device's answer to a round. It is perturbed before it leaves the device.",
    "refusals": "A device may answer that it will not report, for example because its budget is spent.",
    "epsilon": (
        "How much the reports of a device may reveal about what is protected. The smaller it is, the "
        "less they reveal. Twice the epsilon reveals twice as much."
    ),
    "delta": (
        "The probability with which more than epsilon may be revealed. At delta 0 this never happens."
    ),
    "epsilon spent": "The sum over the reports that a device has sent in this run, as its ledger counts.",
    "epsilon left": (
        "What a device may still spend. Once nothing is left, it refuses for the rest of its life. It is "
        "what the board said when it connected, less the cost of its reports since."
    ),
    "allowance": (
        "What the ledger of a board's first device allows it to spend in its whole life, over all runs."
    ),
    "protects": (
        "What the guarantee is about: all records of a device together, or one record, or so many "
        "consecutive records."
    ),
    "range": "Values are clipped to this bound (tau) on the device before they are perturbed.",
    "radius": "The gradient of what is protected is clipped to this length before noise is added.",
    "learning rate": "How far a round moves the model.",
    "card": (
        "The table from which a device draws what it reports. A device proves the epsilon of a card before "
        "it uses it."
    ),
    "mechanism": "The method by which a device perturbs a value.",
    "class": "Devices of a class have the same epsilon and the same card.",
    "values a report": "How many values a device reports in a round. It draws which ones.",
    "levels": "How many different outputs the card has.",
    "AUC": (
        "How well the model ranks records: the probability that it gives a record of the one class a higher "
        "score than one of the other. Guessing has 0.5, a perfect model 1."
    ),
    "accuracy": "The share of the records that were held out for which the model is right.",
    "log-loss": "How surprised the model is by the true classes. Smaller is better.",
    "95 % interval": (
        "The figure is measured on the records that were held out. With others of their kind, it would lie "
        "in this interval in 95 of 100 cases."
    ),
    "without privacy": "The same kind of model, fitted to the same records without any noise.",
    "no features": "A model that looks at no feature: what every useful model must exceed.",
    "library": "The release of tern's device library on the board.",
    "program": (
        "The program that runs on the board, and its version, where it names them: its main.py sets "
        "board.program."
    ),
    "interpreter": "The MicroPython of the board, and its version.",
    "entropy": "The generator of the board's random numbers. Where its source has failed, it reports nothing.",
}


def meaning(name: str) -> str:
    """Return what a word on the page means; "" for one that needs no explanation."""
    return TERMS.get(name, "")


def list_html() -> str:
    """Return all words with their meanings as HTML, folded away until a reader opens it."""
    rows = ""
    for word, text in TERMS.items():
        rows += f"<dt>{as_html(word)}</dt><dd>{as_html(text)}</dd>"
    return f"<details class=terms><summary>What the words mean</summary><dl>{rows}</dl></details>"
