"""A log-mel front end, as in speech networks."""

import numpy as np
import onnx
from numpy.typing import NDArray

from lab.networks.builder import NetworkBuilder
from ranum_falsify.model_builder import Tensor

__all__ = ["log_mel", "log_mel_safe"]

RATE, SAMPLES, FRAME, HOP, MELS = 16_000, 512, 128, 64, 16
FRAMES = (SAMPLES - FRAME) // HOP + 1
BINS = FRAME // 2 + 1


def log_mel() -> onnx.ModelProto:
    """Logarithm of the mel spectrum of 32 ms of sound at 16 kHz, -Inf on silence."""
    g = NetworkBuilder("log_mel", "Log-mel spectrum of 512 samples at 16 kHz: 7 frames, 16 bands.")
    g.output(g.node("Log", _mel_energies(g), name="log", out="features"), (1, FRAMES, MELS))
    g.hazard("log", "128 silent samples in one frame: energy 0 in every band")
    return g.build()


def log_mel_safe() -> onnx.ModelProto:
    """``log_mel`` with energies kept above 1e-10."""
    g = NetworkBuilder("log_mel_safe", "log_mel with energies kept above 1e-10.")
    floored = g.node("Max", _mel_energies(g), g.weight("floor", 1e-10), name="energy_floor")
    g.output(g.node("Log", floored, name="log", out="features"), (1, FRAMES, MELS))
    return g.build()


def _mel_energies(g: NetworkBuilder) -> Tensor:
    audio = g.input("audio", (1, SAMPLES), -1, 1)
    axis = g.indices("time_axis", [1])
    middle = g.indices("frame_axis", [1])
    frames = []
    for index in range(FRAMES):
        start = g.indices(f"frame{index}_start", [index * HOP])
        end = g.indices(f"frame{index}_end", [index * HOP + FRAME])
        piece = g.node("Slice", audio, start, end, axis, name=f"frame{index}_slice")
        frames.append(g.node("Unsqueeze", piece, middle, name=f"frame{index}_unsqueeze"))
    framed = g.node("Concat", *frames, name="frames_concat", axis=1)
    windowed = g.node("Mul", framed, g.weight("window", _hann_window()), name="window_mul")
    squares = []
    for part, basis in zip(("real", "imaginary"), _fourier_bases(), strict=True):
        spectrum = g.node("MatMul", windowed, g.weight(f"dft_{part}", basis), name=f"{part}_matmul")
        squares.append(g.node("Mul", spectrum, spectrum, name=f"{part}_square"))
    power = g.node("Add", *squares, name="power")
    return g.node("MatMul", power, g.weight("mel", _mel_filters()), name="mel_matmul")


def _round(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round to 6 decimals, so that the last bit of a platform's sine cannot change the file."""
    return np.round(values, 6) + 0.0


def _hann_window() -> NDArray[np.float64]:
    return _round(0.5 - 0.5 * np.cos(2.0 * np.pi * (np.arange(FRAME) + 0.5) / FRAME))


def _fourier_bases() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the cosines and sines of the Fourier transform, each ``(samples, bins)``."""
    turns = np.outer(np.arange(FRAME), np.arange(BINS)) % FRAME / FRAME
    return _round(np.cos(2.0 * np.pi * turns)), _round(-np.sin(2.0 * np.pi * turns))


def _mel_filters() -> NDArray[np.float64]:
    """Return triangular filters on the mel scale (O'Shaughnessy 1987), shape ``(bins, bands)``."""
    top = 2595.0 * np.log10(1.0 + RATE / 2 / 700.0)
    corners = 700.0 * (10.0 ** (np.linspace(0.0, top, MELS + 2) / 2595.0) - 1.0)
    # At least one bin on each side keeps the narrow filters at low frequencies from being empty.
    width = np.maximum(np.diff(corners), RATE / FRAME)
    distance = np.arange(BINS)[:, None] * (RATE / FRAME) - corners[None, 1:-1]
    rising, falling = 1.0 + distance / width[:-1], 1.0 - distance / width[1:]
    return _round(np.maximum(0.0, np.minimum(rising, falling)))
