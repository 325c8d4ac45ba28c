"""No operator receives an invalid input, whatever the inputs and one of the weights are, each within a box.

The freed weight is a further input, after the others: an answer about the architecture, not about one training run.

    ranum-falsify properties/no_invalid_input_architecture.py --network N networks/vae.onnx --prop.weight=logvar_W
"""

from dnnv.properties import *

from ranum_falsify.properties import *

N = Network("N")
weight = Parameter("weight", str)
lb = Parameter("lb", float, default=0.0)
ub = Parameter("ub", float, default=1.0)
weight_bound = Parameter("weight_bound", float, default=50.0)

Forall(
    x,
    Implies(
        And(lb <= x[:-1] <= ub, -weight_bound <= x[-1] <= weight_bound),
        no_invalid_input(free(N, weight)(x)),
    ),
)
