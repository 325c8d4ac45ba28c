"""Jobs in worker processes that may crash or hang, for `scripts/sweep_domain.py` and `scripts/fuzz_inputs.py`."""

from lab.crew.crew import Failure, run_jobs

__all__ = ["Failure", "run_jobs"]
