"""Files and streams: whole-file writes, locks, CSV and JSON, safe names, what produced a file."""
