"""Many instances: what suites list, how their instances run on one machine or a cluster, and what they came to."""

__all__: list[str] = []
