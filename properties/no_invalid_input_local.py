"""No operator receives an invalid input near one input: an image, or an array in a .npy file.

    ranum-falsify properties/no_invalid_input_local.py --network N networks/mlp_classifier.onnx \
        --prop.input=networks/digit_three.npy --prop.epsilon=0.05
"""

from dnnv.properties import *

from ranum_falsify.properties import *

N = Network("N")
centre = Image(Parameter("input", str))
epsilon = Parameter("epsilon", float, default=0.1)

Forall(
    x,
    Implies(And(centre - epsilon <= x <= centre + epsilon, 0 <= x <= 1), no_invalid_input(N(x))),
)
