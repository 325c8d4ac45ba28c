"""The kernels that are installed on this machine, compared with the records."""

from ranum_falsify.selfcheck.family import family_here, processor
from ranum_falsify.selfcheck.outcome import LIBRARIES, Outcome, self_check, unmeasured

__all__ = ["LIBRARIES", "Outcome", "family_here", "processor", "self_check", "unmeasured"]
