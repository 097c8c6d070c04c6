"""Stand-in for SGLang, for triage's tests: see README.md beside it."""

__version__ = "0.5.12"
