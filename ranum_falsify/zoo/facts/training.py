"""Training settings of the programs."""

from __future__ import annotations

from ranum_falsify.zoo.model import Training

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
