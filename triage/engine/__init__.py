"""From lines to crashes: what each line says, whose traceback it belongs to, what failed first, and its signature.

Pure: lines go in, crashes come out; no file is read and no clock is asked.
"""
