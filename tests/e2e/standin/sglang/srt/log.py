"""Log lines as SGLang writes them: only the first line of a message carries the time and the rank."""

import logging


def configure_logger(args, rank: str = "") -> None:
    logging.basicConfig(
        level=args.log_level.upper(),
        format=f"[%(asctime)s{' ' + rank if rank else ''}] %(message)s",
        datefmt="%Y-%m-%d %H:%M:%S",
        force=True,
    )
