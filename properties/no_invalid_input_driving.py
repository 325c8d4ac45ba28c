"""No operator of a driving model receives an invalid input, for any frames, commands and recurrent state.

An example of several inputs, each with bounds of its own; they are given in the model's order. Only some operators
are looked at.

    ranum-falsify properties/no_invalid_input_driving.py --network N networks/mini_supercombo.onnx
"""

from dnnv.properties import *

from ranum_falsify.properties import *

N = Network("N")
state_bound = Parameter("state_bound", float, default=1.0)

Forall(
    input_imgs,
    Forall(
        desire,
        Forall(
            traffic_convention,
            Forall(
                initial_state,
                Implies(
                    And(
                        0 <= input_imgs <= 1,
                        0 <= desire <= 1,
                        0 <= traffic_convention <= 1,
                        -state_bound <= initial_state <= state_bound,
                    ),
                    no_invalid_input(
                        N(input_imgs, desire, traffic_convention, initial_state),
                        only=["Log", "Softmax"],
                    ),
                ),
            ),
        ),
    ),
)
