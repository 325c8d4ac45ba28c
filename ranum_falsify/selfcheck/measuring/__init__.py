"""Measurement of kernels: functions to any precision, the operands that are run, the errors found."""

from ranum_falsify.selfcheck.measuring.sweep import EVERYTHING, Measurement, Sweep, make_record, measure, measure_facts
from ranum_falsify.selfcheck.running import rounds_half_sums

__all__ = ["EVERYTHING", "Measurement", "Sweep", "make_record", "measure", "measure_facts", "rounds_half_sums"]
