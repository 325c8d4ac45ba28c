"""Builders of the small ONNX networks under ``networks/``; run by ``scripts/make_networks.py``."""

from networklib.catalogue import IMAGES, NETWORKS
from networklib.readme import readme

__all__ = ["IMAGES", "NETWORKS", "readme"]
