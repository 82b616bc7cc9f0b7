"""One page about runs: `cta report`. From run directories to one blob of data to one HTML file."""

from cta.report.collect import LIMIT_BYTES, Report, build

__all__ = ["LIMIT_BYTES", "Report", "build"]
