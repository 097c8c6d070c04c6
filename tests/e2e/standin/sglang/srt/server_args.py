"""The command line: a plain argparse parser (abbreviations on, unknown flags end with usage and status 2)."""

import argparse
import os

TEXT = (
    "host tokenizer-path tokenizer-mode load-format dtype quantization kv-cache-dtype attention-backend "
    "sampling-backend grammar-backend served-model-name api-key admin-api-key chat-template reasoning-parser "
    "tool-call-parser speculative-algorithm speculative-draft-model-path log-level dist-init-addr ssl-keyfile "
    "ssl-certfile schedule-policy moe-runner-backend disaggregation-mode context-length revision"
)
WHOLE = (
    "port tp-size pp-size dp-size ep-size nnodes node-rank max-running-requests max-total-tokens "
    "chunked-prefill-size max-prefill-tokens cuda-graph-max-bs page-size stream-interval base-gpu-id "
    "speculative-num-steps speculative-eagle-topk speculative-num-draft-tokens speculative-dflash-block-size "
    "speculative-ddtree-budget watchdog-timeout dist-timeout random-seed nccl-port decode-log-interval"
)
REAL = ["mem-fraction-static", "schedule-conservativeness"]
SWITCH = (
    "trust-remote-code disable-cuda-graph disable-piecewise-cuda-graph disable-radix-cache disable-overlap-schedule "
    "disable-custom-all-reduce enable-metrics enable-mixed-chunk skip-server-warmup skip-tokenizer-init is-embedding "
    "enable-torch-compile enable-dp-attention enable-hierarchical-cache enable-symm-mem log-requests "
    "enable-nan-detection disable-cuda-graph-padding enable-p2p-check"
)
DEFAULTS = {"host": "127.0.0.1", "port": 30000, "tp_size": 1, "log_level": "info", "watchdog_timeout": 300}
ALIASES = {"tp-size": ["--tp", "--tensor-parallel-size"], "dp-size": ["--dp"], "pp-size": ["--pp"], "ep-size": ["--ep"]}
CHOICES = {"attention-backend": ["triton", "flashinfer", "fa3", "torch_native"]}


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="launch_server.py")
    parser.add_argument("--model-path", "--model", required=True)
    for name in TEXT.split():
        parser.add_argument(f"--{name}", choices=CHOICES.get(name))
    for name in WHOLE.split():
        parser.add_argument(f"--{name}", *ALIASES.get(name, []), type=int)
    for name in REAL:
        parser.add_argument(f"--{name}", type=float)
    lacking = behaviour().get("lacks", "").split("+")
    for name in SWITCH.split():
        if name in lacking:
            parser.set_defaults(**{name.replace("-", "_"): False})
        else:
            parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--cuda-graph-bs", type=int, nargs="+")
    parser.add_argument("--version", action="version", version="0.5.12")
    parser.set_defaults(**DEFAULTS)
    return parser


def with_config(argv):
    """What the file of --config says goes before the command's own words: of repeated flags the last wins."""
    if "--config" not in argv:
        return argv
    at = argv.index("--config")
    filed = []
    with open(argv[at + 1]) as file:
        for line in file:
            key, _, value = line.partition(":")
            filed += [f"--{key}"] if value.strip() == "true" else [f"--{key}", value.strip()]
    return [*filed, *argv[:at], *argv[at + 2 :]]


def prepare_server_args(argv):
    args = make_parser().parse_args(with_config(argv))
    args.served_model_name = args.served_model_name or args.model_path
    args.tokenizer_path = args.tokenizer_path or args.model_path
    args.mem_fraction_static = args.mem_fraction_static or 0.874
    return args


def as_text(args) -> str:
    """The whole of it, secrets too, as the real server prints it."""
    return "ServerArgs(" + ", ".join(f"{k}={v!r}" for k, v in vars(args).items()) + ")"


def behaviour() -> dict:
    """The words of STANDIN, or of the file that STANDIN_FILE names, as word -> value."""
    words = os.environ.get("STANDIN", "")
    path = os.environ.get("STANDIN_FILE")
    if path and os.path.exists(path):
        with open(path) as file:
            words = file.readline().strip()
    return {name: value for name, _, value in (word.partition("=") for word in words.split(",") if word)}
