"""What a unit is: its files and their text, the effective command, edits of it, the one drop-in, the manager.

Standard library only: root's one-shot runs on these rooms, and a test looks at what it loads.
"""
