"""No operator receives an invalid input, for any input in a box.

One input: `ranum-falsify properties/no_invalid_input_box.py --network N networks/l2_normalise.onnx`
"""

from dnnv.properties import *

from ranum_falsify.properties import *

N = Network("N")
lb = Parameter("lb", float, default=-1.0)
ub = Parameter("ub", float, default=1.0)

Forall(x, Implies(lb <= x <= ub, no_invalid_input(N(x))))
