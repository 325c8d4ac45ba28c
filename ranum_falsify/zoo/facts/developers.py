"""Changes that the developers of the programs made about their defects, by the study of RANUM (ICSE 2023)."""

from __future__ import annotations

from functools import partial

from ranum_falsify.zoo.architectures.multilayer import hidden_layer_with_dropout
from ranum_falsify.zoo.architectures.stochastic_computing import stochastic_computing
from ranum_falsify.zoo.developer import DeveloperFix, DeveloperGuard, FixStatus

_LEAST, _GREATEST_EXPONENT = 1e-37, 38.0
"""RANUM's conditions on operands of Log and Sqrt, and of Exp; its authors hold guards at the node equivalent."""

_NOT_FOUND = DeveloperFix(status="unknown", detail="the program was not found on GitHub")
_MUTATED = DeveloperFix(status="unknown", detail="a mutated copy, which does not exist upstream")
_HARMLESS = DeveloperFix(status="none", detail="held not to occur with the fixed data that the program uses")
_IMPRACTICAL = DeveloperFix(status="none", detail="held to be of no practical importance")
_REPORTED = DeveloperFix(status="none", detail="not fixed; RANUM's authors reported it")
_KNOWN = DeveloperFix(status="none", detail="not fixed; somebody else had reported it")
_DEMONSTRATION = DeveloperFix(status="none", detail="the model is there to show NaN")


def _at_node(status: FixStatus, detail: str, *guards: DeveloperGuard) -> DeveloperFix:
    """Return a fix at the defective node of which only that is known."""
    return DeveloperFix(status=status, detail=f"{detail}; its form is not recorded", guards=guards, exact=False)


def _at_log(status: FixStatus, detail: str, *nodes: str) -> DeveloperFix:
    return _at_node(status, detail, *(DeveloperGuard(node=node, low=_LEAST) for node in nodes or ("log",)))


_OF_THE_STUDY = "the fixed version of a study of TensorFlow's bugs guards the logarithm"
_LOG_OF_SIGMOIDS = _at_log(
    "fixed",
    f"{_OF_THE_STUDY}; a comment in the program names TensorFlow's cross entropy of logits",
    "log_p",
    "log_not_p",
)
_EXP_GUARD = _at_node(
    "proposed",
    "an issue proposes a guard at the exponential",
    *(DeveloperGuard(node=node, high=_GREATEST_EXPONENT) for node in ("exp", "exp_reconstruction")),
)
_EPSILONS = DeveloperFix(
    status="fixed",
    detail="an epsilon is added to the denominators; its size is that of the sister program, 1e-7",
    build=partial(stochastic_computing, safe=False, epsilon=1e-7, shared_gain=True, regulariser="decay"),
    exact=False,
)

DEVELOPER_FIXES: dict[str, DeveloperFix] = {
    **dict.fromkeys(
        "1 12 21 23 25 30 33 34 45a 45b 46 47 50 51 52 55 56 57 58 60".split(),
        _NOT_FOUND,
    ),
    **dict.fromkeys("36b 39b 43b 49b".split(), _MUTATED),
    **dict.fromkeys("5 13 17 37 38 53 54".split(), _HARMLESS),
    **dict.fromkeys("28a 28b".split(), _IMPRACTICAL),
    **dict.fromkeys("2a 2b 19 26 27 32 36a 39a 43a 49a".split(), _REPORTED),
    **dict.fromkeys("18 20 22 24 29 40 41 42".split(), _KNOWN),
    **dict.fromkeys("11a 11b 11c 16a 16b 16c".split(), _DEMONSTRATION),
    **dict.fromkeys("6 7 8".split(), _at_log("fixed", _OF_THE_STUDY)),
    **dict.fromkeys("9a 9b".split(), _LOG_OF_SIGMOIDS),
    **dict.fromkeys("28c 28d".split(), _EPSILONS),
    **dict.fromkeys("44 48a 48b".split(), _at_log("proposed", "an issue proposes a guard at the logarithm")),
    **dict.fromkeys("62 63".split(), _EXP_GUARD),
    "3": DeveloperFix(status="none", detail="not fixed; a similar defect was reported to TensorFlow-Examples"),
    "4": DeveloperFix(
        status="unused",
        detail="held not to occur with the program's data; a comment clips the log variance to 10 at most",
        guards=(DeveloperGuard(node="log", high=10.0),),
    ),
    "10": DeveloperFix(status="weakened", detail="the learning rate is lower"),
    "14": DeveloperFix(status="unused", detail="a comment has a fused cross entropy of logits", fused=True),
    "15": DeveloperFix(status="none", detail="not fixed; weights of magnitudes up to 0.1 alone would limit the model"),
    "31": DeveloperFix(
        status="unused",
        detail="the program was not found on GitHub; a comment adds 0.01 to what both logarithms read",
        guards=(DeveloperGuard(node="log_real", add=0.01), DeveloperGuard(node="log_not_fake", add=0.01)),
    ),
    "35a": _at_log("proposed", "an issue proposes a guard at the logarithm", "log_not_r"),
    "35b": _at_node(
        "proposed", "an issue proposes a guard at the square root", DeveloperGuard(node="sqrt", low=_LEAST)
    ),
    "59": DeveloperFix(
        status="unused",
        detail="the program was not found on GitHub; it clips the softmax to 1e-15 and does not use the result",
        guards=(DeveloperGuard(node="log", low=1e-15, high=1.0),),
    ),
    "61": DeveloperFix(
        status="weakened",
        detail="the learning rate is lower, or the loss is a mean",
        build=partial(hidden_layer_with_dropout, safe=False, loss="mean"),
    ),
}
"""By the id of the defect."""
