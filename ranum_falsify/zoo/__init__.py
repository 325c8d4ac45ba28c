"""A zoo of real numerical defects: 63 programs rebuilt as ONNX models, each with a repaired twin.

Sources of the facts: the benchmark of GRIST (M. Yan et al., Exposing Numerical Bugs in Deep Learning via Gradient
Back-Propagation, ESEC/FSE 2021), with the numbers of RANUM (L. Li et al., Reliability Assurance for Deep Neural Network
Architectures Against Numerical Defects, ICSE 2023).
"""

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing

__all__: list[str] = []
