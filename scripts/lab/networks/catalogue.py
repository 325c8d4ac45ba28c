"""All networks and pictures, by the name of their file."""

from collections.abc import Callable

import numpy as np
import onnx
from numpy.typing import NDArray

from lab.networks import attention, audio, classifiers, normalisation, supercombo, vae

__all__ = ["IMAGES", "NETWORKS"]

_BUILDERS: tuple[Callable[[], onnx.ModelProto], ...] = (
    classifiers.softmax_regression,
    classifiers.softmax_regression_safe,
    vae.vae,
    normalisation.l2_normalise,
    normalisation.l2_normalise_safe,
    normalisation.layer_norm_no_epsilon,
    normalisation.layer_norm_safe,
    audio.log_mel,
    audio.log_mel_safe,
    attention.masked_attention,
    attention.masked_attention_safe,
    supercombo.mini_supercombo,
    normalisation.split_forms,
    classifiers.mlp_classifier,
    classifiers.classifier_a,
    classifiers.classifier_b,
)

NETWORKS = {builder.__name__: builder for builder in _BUILDERS}
IMAGES: dict[str, NDArray[np.float32]] = {"digit_three": classifiers.digit(3)}
