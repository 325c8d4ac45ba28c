"""No operator receives an invalid input, for any inputs in a box.

x stands for all inputs of the network; `lb <= x[1] <= ub` would bound the second one alone.

    ranum-falsify properties/no_invalid_input_box.py --network N networks/l2_normalise.onnx
    ranum-falsify properties/no_invalid_input_box.py --network N networks/softmax_regression.onnx --prop.lb=0
"""

from dnnv.properties import *

from ranum_falsify.properties import *

N = Network("N")
lb = Parameter("lb", float, default=-1.0)
ub = Parameter("ub", float, default=1.0)

Forall(x, Implies(lb <= x <= ub, no_invalid_input(N(x))))
