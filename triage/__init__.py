"""Crash triage, log diagnosis and reversible remedies for SGLang running as systemd units."""

__version__ = "0.1.0"
