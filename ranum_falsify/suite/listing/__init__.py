"""What suites list: VNN-COMP's and DNNV's files, and our `suite.toml`."""

from ranum_falsify.suite.listing.listing import list_instances

__all__ = ["list_instances"]
