"""`python -m triage`: the same program as the installed `triage`."""

from triage.cli import main

main()
