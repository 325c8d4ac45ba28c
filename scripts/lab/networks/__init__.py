"""Builders of the small ONNX networks under ``networks/``; run by ``scripts/make_networks.py``."""

from lab.networks.catalogue import IMAGES, NETWORKS
from lab.networks.readme import readme

__all__ = ["IMAGES", "NETWORKS", "readme"]
