"""Flags, variables and directives that triage never changes, whatever a site's policy says.

In: nothing. Called by `policy`, on root's side, and by `offer`, so that no rung is said to fit that root will refuse.
They would turn "may edit flags" into "may run code as root", or show a secret.
"""

from __future__ import annotations

NEVER_FLAGS = frozenset(
    (
        "--model-path",
        "--tokenizer-path",
        "--trust-remote-code",
        "--speculative-draft-model-path",
        "--lora-paths",
        "--config",
        "--api-key",
        "--admin-api-key",
        "--ssl-keyfile",
        "--ssl-certfile",
        "--download-dir",
        "--custom-weight-loader",
        "--crash-dump-folder",
        "--file-storage-path",
    )
)
NEVER_VARIABLES = (
    "LD_*",
    "PYTHON*",
    "PATH",
    "HOME",
    "SHELL",
    "BASH_*",
    "ENV",
    "IFS",
    "*EXTERNAL*",
    "*PLUGIN*",
    "*_PROXY",
    "*_proxy",
    "GCONV_PATH",
)
NEVER_SETTINGS = (
    "Service.Exec*",
    "Service.User",
    "Service.Group",
    "Service.SupplementaryGroups",
    "Service.DynamicUser",
    "Service.PAMName",
    "Service.Root*",
    "Service.Bind*",
    "Service.*Capabilit*",
    "Service.Environment*",
    "Service.PassEnvironment",
    "Service.UnsetEnvironment",
    "Service.WorkingDirectory",
    "Service.LoadCredential*",
    "Service.Standard*",
    "Service.*Directory*",
    "Unit.OnFailure",
    "Unit.OnSuccess",
    "Install.*",
)
