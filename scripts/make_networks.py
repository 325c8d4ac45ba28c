"""Write the small networks, the pictures and the table of ``networks/``.

The files are the same, byte for byte, wherever this runs: weights come from seeded generators, and models hold no time
and no version of a library.
"""

import argparse
from pathlib import Path

import numpy as np

from lab.networks import IMAGES, NETWORKS, readme

__all__ = ["main", "write_networks"]


def write_networks(folder: Path) -> None:
    """Write every network, picture and ``README.md`` into ``folder``, which is created if it is missing.

    Raises:
        OSError: the folder or a file in it cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    models = {name: build() for name, build in NETWORKS.items()}
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString(deterministic=True))
    for name, image in IMAGES.items():
        np.save(folder / f"{name}.npy", image)
    (folder / "README.md").write_text(readme(models.values()), encoding="utf-8", newline="\n")


def main() -> None:
    """Write the networks into the folder that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    default = Path(__file__).resolve().parent.parent / "networks"
    parser.add_argument("--output", type=Path, default=default, help="folder to write to")
    write_networks(parser.parse_args().output)


if __name__ == "__main__":
    main()
