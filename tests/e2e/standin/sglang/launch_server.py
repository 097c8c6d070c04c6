"""`python -m sglang.launch_server ...`: the recommended door is `sglang serve`, but units use this one."""

import sys

from sglang.srt.server_args import prepare_server_args

if __name__ == "__main__":
    server_args = prepare_server_args(sys.argv[1:])

    from sglang.srt.entrypoints.http_server import launch_server

    launch_server(server_args)
