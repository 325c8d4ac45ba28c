"""Facts about the programs besides their models: what developers did about defects, how and on what programs train."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ranum_falsify.zoo.architectures.classifiers import hidden_layer_with_dropout
from ranum_falsify.zoo.architectures.stochastic_computing import stochastic_computing
from ranum_falsify.zoo.model import DeveloperFix, DeveloperGuard, FixStatus, Training

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


_SUM = "cross entropy, summed over batch and classes"
_MEAN = "cross entropy, summed over the classes, its mean over the batch"
_BINARY = "binary cross entropy, its mean over all elements"
_DIVERGENCE = "free energy of the data minus that of their reconstruction"
_EVIDENCE = "the negative evidence lower bound"
_TWO_OPTIMISERS = "discriminator and generator have an optimiser each, here both step on the same batch"
_BY_HAND = (
    "written out: the step of W is 0.01 times the sum over the batch of 100, so 1 times the mean; "
    "that of b is the mean over W's rows of the step of W, here its own gradient"
)


TRAININGS: dict[str, Training] = {
    "1": Training("Adam", 0.001, 101, _SUM),
    "2": Training("Adam", 0.01, 10, _BINARY),
    "3": Training("Adam", 0.005, 100, _SUM),
    "6": Training("Adam", 0.0001, 50, _SUM),
    "7": Training("Adam", 0.0001, 50, _SUM),
    "8": Training("Adam", 0.0001, 50, _SUM),
    "9": Training("SGD", 0.5, 100, "binary cross entropies, summed over the classes, their mean over the batch"),
    "10": Training("SGD", 0.005, 205, _SUM),
    "11a": Training("SGD", 0.01, 100, _MEAN),
    "11b": Training("SGD", 0.01, 100, _MEAN),
    "11c": Training("SGD", 0.01, 100, _MEAN),
    "12": Training("SGD", 0.1, 128, _MEAN),
    "14": Training("SGD", 0.001, 64, _SUM),
    "15": Training("RMSProp", 0.001, 12, _MEAN, epsilon=1e-6, centered=True),
    "16a": Training("SGD", 0.01, 100, _MEAN),
    "16b": Training("SGD", 0.01, 100, _MEAN),
    "16c": Training("SGD", 0.01, 100, _MEAN),
    "17": Training("Momentum", 0.2, 1, "the negative dice coefficient", momentum=0.2, decay=0.95, decay_steps=32),
    "18": Training("SGD", 0.5, 50, _MEAN),
    "19": Training("SGD", 0.2, 50, _MEAN),
    "20": Training("SGD", 0.01, 100, _MEAN),
    "21": Training("SGD", 0.01, 100, _SUM),
    "22": Training("SGD", 0.1, 64, _DIVERGENCE),
    "24": Training("Adam", 0.0001, 100, _SUM),
    "25": Training("SGD", 0.6, 100, _MEAN),
    "26": Training("SGD", 1.0, 6, _BINARY),
    "28a": Training("Adam", 0.1, 500, "cross entropy plus a penalty on magnitudes of weights above 1"),
    "28b": Training("Adam", 0.1, 500, "cross entropy plus a penalty on magnitudes of weights above 1"),
    "28cd": Training(
        "Adam",
        0.1,
        500,
        "cross entropy plus decay of the weights",
        note="one of the program's loops evaluates the loss and trains nothing",
    ),
    "29": Training("Adam", 0.0005, 100, _SUM),
    "30": Training("SGD", 0.01, 100, _SUM),
    "31": Training("Adam", 0.0002, 100, "one for each network", note=_TWO_OPTIMISERS, parts=("D_", "G_")),
    "32": Training("SGD", 0.1, 8, _SUM),
    "33": Training("SGD", 1.0, 6, _BINARY),
    "34": Training("SGD", 0.1, 8, _MEAN),
    "35a": Training("Adam", 0.001, 100, _EVIDENCE),
    "35b": Training("Adam", 0.001, 100, _EVIDENCE),
    "36a": Training("Adam", 0.001, 100, _EVIDENCE),
    "36b": Training("Adam", 0.001, 100, _EVIDENCE),
    "37": Training("SGD", 0.01, 6, _BINARY),
    "38": Training("SGD", 0.1, 4, _BINARY),
    "39a": Training("Adam", 0.001, 100, _EVIDENCE),
    "39b": Training("Adam", 0.001, 100, _EVIDENCE),
    "40": Training("SGD", 0.01, 100, _SUM),
    "41": Training("SGD", 0.01, 100, _SUM),
    "42": Training("SGD", 0.01, 100, _SUM),
    "43a": Training("Adam", 0.001, 100, _EVIDENCE),
    "43b": Training("Adam", 0.001, 100, _EVIDENCE),
    "44": Training("Adagrad", 0.001, 50, _SUM),
    "45a": Training("SGD", 0.5, 50, _MEAN),
    "45b": Training("Adam", 0.0001, 50, _MEAN),
    "47": Training("SGD", 0.1, 8, _MEAN),
    "48a": Training("Adagrad", 0.3, 100, _MEAN),
    "48b": Training("SGD", 0.5, 100, _MEAN),
    "49a": Training("Adam", 0.001, 100, _EVIDENCE),
    "49b": Training("Adam", 0.001, 100, _EVIDENCE),
    "50": Training("SGD", 0.05, 100, _MEAN),
    "51": Training("SGD", 0.1, 64, _DIVERGENCE),
    "52": Training("SGD", 0.005, 100, _SUM),
    "53": Training("SGD", 1.0, 12, _BINARY, note="written out, without an optimiser"),
    "54": Training("Adam", 0.1, 8, _MEAN),
    "55": Training("Adam", 0.0001, 50, _MEAN),
    "56": Training("SGD", 1.0, 6, _BINARY),
    "58": Training("Adam", 0.0001, 50, _SUM),
    "59": Training("SGD", 1.0, 100, _MEAN, note=_BY_HAND),
    "60": Training("SGD", 0.01, 100, _SUM),
    "61": Training("Adagrad", 0.01, 128, _SUM),
    "62": Training("Adam", 0.005, 64, _DIVERGENCE),
    "63": Training("Adam", 0.005, 64, _DIVERGENCE),
}
"""By the id of the model; models that are not here have no optimiser."""


_Numbers = Sequence[float] | Sequence[Sequence[float]]

_HOURS: dict[str, _Numbers] = {
    "x": [[1, 2], [2, 3], [3, 1], [4, 3], [5, 3], [6, 2]],
    "y": [0, 0, 0, 1, 1, 1],
}

_ROWS: _Numbers = [
    [1, 2, 1, 1],
    [2, 1, 3, 2],
    [3, 1, 3, 4],
    [4, 1, 5, 5],
    [1, 7, 5, 5],
    [1, 2, 5, 6],
    [1, 6, 6, 6],
    [1, 7, 7, 7],
]
_ONE_HOT: _Numbers = [*([[0, 0, 1]] * 3), *([[0, 1, 0]] * 3), *([[1, 0, 0]] * 2)]
_CLASSES: dict[str, _Numbers] = {"x": _ROWS, "oh": _ONE_HOT}

SAMPLES: Mapping[str, Mapping[str, _Numbers]] = {
    "26": _HOURS,
    "32": _CLASSES,
    "33": _HOURS,
    "34": {"x": _ROWS, "y": [2, 2, 2, 1, 1, 1, 0, 0]},
    "37": _HOURS,
    "38": {"x": [[0, 0], [0, 1], [1, 0], [1, 1]], "y": [0, 1, 1, 0]},
    "47": _CLASSES,
    "53": {
        "x": [1, 2, 3, 4, 5, 2.5, 3.5, 0, 3.1, 2.7, 2.8, 2.9],
        "y": [1, 1, 1, 0, 0, 0, 0, 1, 0, 1, 1, 1],
    },
    "54": _CLASSES,
    "56": _HOURS,
}
"""By the id of the model and the name of the input."""
