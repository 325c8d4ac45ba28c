"""Training data that leads a training run into a defect.

The second half of RANUM's confirmation (L. Li et al., Reliability Assurance for Deep Neural Network Architectures
Against Numerical Defects, ICSE 2023, section 4.3), with the search for data by gradient matching (L. Zhu et al., Deep
Leakage from Gradients, NeurIPS 2019) as one of several.
"""

__all__: list[str] = []
