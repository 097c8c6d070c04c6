"""Captured graphs: `capture` once at start, `replay` for every step that has a graph."""

import logging

logger = logging.getLogger(__name__)


class OutOfMemoryError(RuntimeError):
    """Printed as torch.OutOfMemoryError, as torch does."""


class AcceleratorError(RuntimeError):
    """Printed as torch.AcceleratorError."""


OutOfMemoryError.__module__ = AcceleratorError.__module__ = "torch"

# Printed after any exception in capture, whatever it was: the heading that must not decide.
ADVICE = """
Possible solutions:
1. a smaller --mem-fraction-static
2. a smaller --cuda-graph-max-bs
3. disable CUDA graph by --disable-cuda-graph
"""


class CudaGraphRunner:
    def __init__(self, args, rank: int, faults: dict):
        self.args = args
        self.rank = rank
        self.faults = faults
        try:
            self.capture()
        except RuntimeError as e:
            raise Exception(f"Capture cuda graph failed: {e}\n{ADVICE}") from e

    def capture(self) -> None:
        logger.info("Capture cuda graph begin. This can take up to several minutes. avail mem=38.41 GB")
        logger.info("Capture cuda graph bs [1, 2, 4, 8, 12, 16, 24, 32]")
        for bs in (32, 16, 8):
            self.capture_one_batch_size(bs)
        logger.info("Capture cuda graph end. Time elapsed: 0.02 s. mem usage=1.12 GB. avail mem=37.29 GB.")

    def capture_one_batch_size(self, bs: int) -> None:
        if "oom-capture" in self.faults and self.args.mem_fraction_static > 0.80:
            raise OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate 2.31 GiB. GPU {self.rank} has a total capacity of 139.80 GiB "
                "of which 1.07 GiB is free. Including non-PyTorch memory, this process has 138.72 GiB memory in use."
            )
        budgets = (
            self.args.speculative_ddtree_budget,
            self.args.speculative_num_draft_tokens,
            self.args.speculative_dflash_block_size,
        )
        if "illegal-capture" in self.faults and max(b or 0 for b in budgets) > 8:
            raise AcceleratorError(
                "CUDA error: an illegal memory access was encountered\n"
                "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below "
                "might be incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
                "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
            )

    def replay(self, forward_batch, after):
        """The graph fills the static output buffers; `after` takes them from there."""
        output_buffers = None  # the fault of the story: the graph was captured before the buffers were bound
        return after(forward_batch, output_buffers)
