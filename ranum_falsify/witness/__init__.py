"""Unit tests that trigger numerical defects: inputs and weights, and a span around them in which every point does.

The first half of RANUM's confirmation (L. Li et al., Reliability Assurance for Deep Neural Network Architectures
Against Numerical Defects, ICSE 2023, section 4.2).
"""

from __future__ import annotations

import ranum_falsify.upstream  # noqa: F401 - says what to install where DNNV is missing

__all__: list[str] = []
