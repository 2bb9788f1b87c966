"""Turns settings of MindSpore Federated's protection of inference results into options of tern.

MindSpore's guide takes 1 for the L1 sensitivity of a vector of class probabilities, and adds noise
of scale 1 / laplace_eval_eps. But two such vectors differ by up to 2. So the true epsilon, which is
the option `epsilon` of tern, is twice laplace_eval_eps.

| MindSpore | tern |
|---|---|
| `privacy_eval_type` LAPLACE, `laplace_eval_eps` X | `epsilon` 2 X |
| `privacy_eval_type` NOT_ENCRYPT | `no_noise` |
| `cluster_client_num` N | `clients` N: of more clients, N are asked; of fewer, all |
| `eval_type` | `score`: see SCORES |
"""

import math
from decimal import Decimal, InvalidOperation
from typing import Any

from ternhost.errors import UsageError
from ternhost.learn.inference.clustering import CALINSKI_HARABASZ, NONE, SILHOUETTE

LAPLACE = "LAPLACE"
NOT_ENCRYPT = "NOT_ENCRYPT"
# Kinds of scores by MindSpore's names; its guide does not mention NOT_EVAL. What its text computes
# by the name SILHOUETTE_SCORE, which counts the distance of a vector to itself, is
# `silhouette-self` in tern.
SCORES = {
    "NOT_EVAL": NONE,
    "SILHOUETTE_SCORE": SILHOUETTE,
    "CALINSKI_HARABASZ": CALINSKI_HARABASZ,
    "CALINSKI_HARABASZ_SCORE": CALINSKI_HARABASZ,  # its text has this name in places, too
}


def true_epsilon(laplace_eval_eps: str | float) -> str:
    """Return the epsilon of a report at a setting of MindSpore's, as an option of tern.

    Raises UsageError if the setting is not a number.
    """
    try:
        setting = Decimal(str(laplace_eval_eps))
    except InvalidOperation as error:
        raise UsageError(f"laplace_eval_eps must be a number, not {laplace_eval_eps!r}") from error
    return f"{(2 * setting).normalize():f}"


def setting_for(noise: float, probability: float) -> float:
    """Return the laplace_eval_eps at which noise is at most `noise` with this probability.

    Laplace noise of scale 1 / laplace_eval_eps is at most x with the probability p = 1 - exp(-x
    laplace_eval_eps), so the latter is -log(1 - p) / x. This is the formula of MindSpore's guide.
    """
    return -math.log1p(-probability) / noise


def options(
    laplace_eval_eps: str | float = 1,
    *,
    privacy_eval_type: str = LAPLACE,
    cluster_client_num: int = 0,
    eval_type: str = "SILHOUETTE_SCORE",
) -> dict[str, Any]:
    """Return the options of tern's protected inference for these settings of MindSpore's.

    Raises UsageError for a name that MindSpore does not have, and for an epsilon that is not a
    number.
    """
    if eval_type not in SCORES:
        raise UsageError(f"there is no eval_type {eval_type!r}", f"one of: {', '.join(SCORES)}")
    if privacy_eval_type not in (LAPLACE, NOT_ENCRYPT):
        text = f"there is no privacy_eval_type {privacy_eval_type!r}"
        raise UsageError(text, f"{LAPLACE} or {NOT_ENCRYPT}")
    values: dict[str, Any] = {"clients": cluster_client_num, "score": SCORES[eval_type]}
    if privacy_eval_type == NOT_ENCRYPT:
        values["no_noise"] = True
    else:
        values["epsilon"] = true_epsilon(laplace_eval_eps)
    return values
