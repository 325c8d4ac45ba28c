"""The command `suite compare`."""

from ranum_falsify.cli.options import CompareOptions

__all__ = ["run"]


def run(options: CompareOptions) -> int:
    """Run the command."""
    raise NotImplementedError(options)
