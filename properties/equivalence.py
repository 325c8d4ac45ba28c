"""Two networks choose the same class, and their scores differ little.

    ranum-falsify properties/equivalence.py \
        --network N networks/classifier_a.onnx --network M networks/classifier_b.onnx
"""

import numpy as np
from dnnv.properties import *

N = Network("N")
M = Network("M")
lb = Parameter("lb", float, default=-1.0)
ub = Parameter("ub", float, default=1.0)
tolerance = Parameter("tolerance", float, default=0.5)

Forall(
    x,
    Implies(
        lb <= x <= ub,
        And(np.argmax(N(x)) == np.argmax(M(x)), -tolerance <= N(x) - M(x) <= tolerance),
    ),
)
