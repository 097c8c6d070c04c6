"""An action carried out: the spool and its wire format, root's ledger and policy, the steps, the proof.

Standard library only: this is what runs as root, and a test looks at what it loads.
"""
