"""The draft worker of block-wise speculation. Its NoneType error is the story that triage was born from."""

import logging

from sglang.srt.model_executor.cuda_graph_runner import CudaGraphRunner

logger = logging.getLogger(__name__)


class Output:
    hidden_states = (0.0,)


class DFlashWorker:
    def __init__(self, args, rank: int, faults: dict):
        self.faults = faults
        eager = args.disable_cuda_graph and "incurable" not in faults and "poison" not in faults
        self.graph_runner = None if eager else CudaGraphRunner(args, rank, faults)
        self.block_size = args.speculative_dflash_block_size or 16
        if rank == 0:
            logger.info(f"Initialized DFLASH draft runner. attention_backend=fa3, block_size={self.block_size}")

    def forward_batch_generation(self, batch):
        if self.graph_runner is not None:
            return self.graph_runner.replay(batch, self._take_draft_hidden)
        return self._take_draft_hidden(batch, Output())

    # The crash is known by its place: `draft_hidden = ...` must stand on line 715 when installed (see install.py).
    # --- padding: what follows stands on line 712
    def _take_draft_hidden(self, batch, draft_logits_output):
        if "healthy" in self.faults or ("poison" in self.faults and batch != "poison"):
            draft_logits_output = Output()
        draft_hidden = draft_logits_output.hidden_states
        return list(draft_hidden)
