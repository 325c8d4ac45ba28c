"""A classifier gives every input near a given one the same class.

    ranum-falsify properties/robustness.py --network N networks/mlp_classifier.onnx \
        --prop.input=networks/digit_three.npy --prop.epsilon=0.5
"""

import numpy as np
from dnnv.properties import *

N = Network("N")
centre = Image(Parameter("input", str))
epsilon = Parameter("epsilon", float, default=0.1)

Forall(
    x,
    Implies(
        And(centre - epsilon <= x <= centre + epsilon, 0 <= x <= 1),
        np.argmax(N(x)) == np.argmax(N(centre)),
    ),
)
