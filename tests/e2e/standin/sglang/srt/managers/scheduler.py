"""One rank: loads, captures, then answers the parent's batches for ever. Whatever goes wrong ends the whole server."""

import contextlib
import ctypes
import logging
import os
import signal
import threading
import time
import traceback

from sglang.srt.log import configure_logger
from sglang.srt.model_executor.cuda_graph_runner import OutOfMemoryError
from sglang.srt.server_args import behaviour
from sglang.srt.speculative.dflash_worker import DFlashWorker

logger = logging.getLogger(__name__)
PR_SET_NAME, PR_SET_PDEATHSIG = 15, 1


def set_title(title: str) -> None:
    """What `ps` and journald's _COMM show (the kernel keeps 15 characters)."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NAME, title.encode()[:15], 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Scheduler:
    def __init__(self, args, tp_rank: int, pipe):
        self.args = args
        self.tp_rank = tp_rank
        self.pipe = pipe
        self.faults = behaviour()
        self.generations = 0
        self.small = (args.chunked_prefill_size or 8192) <= 2048
        self.init_model_worker()

    def init_model_worker(self) -> None:
        started = time.monotonic()
        logger.info("Init torch distributed begin.")
        logger.info("Init torch distributed ends. elapsed=0.02 s, mem usage=1.31 GB")
        logger.info("Load weight begin. avail mem=137.90 GB")
        time.sleep(float(self.faults.get("slow") or 0.1))
        elapsed = time.monotonic() - started
        logger.info(
            f"Load weight end. elapsed={elapsed:.2f} s, type=KimiK2ForCausalLM, avail mem=61.22 GB, mem usage=76.68 GB."
        )
        logger.info("KV Cache is allocated. #tokens: 524288, K size: 9.10 GB, V size: 9.10 GB")
        logger.info("Memory pool end. avail mem=39.02 GB")
        self.model_worker = DFlashWorker(self.args, self.tp_rank, self.faults)
        if self.tp_rank == 0:
            logger.info(
                "max_total_num_tokens=524288, chunked_prefill_size=8192, max_prefill_tokens=16384, "
                "max_running_requests=48, context_len=131072, available_gpu_mem=37.29 GB"
            )

    def event_loop_normal(self) -> None:
        while True:
            batch = self.pipe.recv()
            result = self.run_batch(batch)
            self.pipe.send(result)

    def run_batch(self, batch):
        if self.tp_rank == 0:
            logger.info(
                "Prefill batch, #new-seq: 1, #new-token: 13, #cached-token: 0, token usage: 0.00, #running-req: 0, "
                "#queue-req: 0, cuda graph: False, input throughput (token/s): 7.25"
            )
        if batch == "warmup":  # one prefill step: no draft, no graph
            return "ok"
        self.generations += 1
        if self.generations == int(self.faults.get("hang-at") or 0):
            threading.Event().wait()
        if self.generations >= int(self.faults.get("oom-at") or 1 << 30) and not self.small:
            raise OutOfMemoryError(
                f"CUDA out of memory. Tried to allocate 2.25 GiB. GPU {self.tp_rank} has a total capacity of "
                "139.80 GiB of which 1.10 GiB is free. This process has 138.72 GiB memory in use."
            )
        if "zombie" in self.faults and self.tp_rank == 0 and self.args.disable_cuda_graph:
            os._exit(0)
        if "hang" in self.faults or ("hang-eager" in self.faults and self.args.disable_cuda_graph):
            threading.Event().wait()
        if "dies-silently" in self.faults and self.tp_rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        batch_result = self.model_worker.forward_batch_generation(batch)
        if self.tp_rank == 0:
            speed = 20.95 if "half" in self.faults and self.small else 41.90
            logger.info(
                "Decode batch, #running-req: 1, #token: 21, token usage: 0.00, accept len: 3.52, accept rate: 0.44, "
                f"cuda graph: {not self.args.disable_cuda_graph}, gen throughput (token/s): {speed:.2f}, #queue-req: 0"
            )
        return batch_result

    def chatter(self, a_second: float) -> None:
        while True:
            time.sleep(1 / a_second)
            logger.info("Decode batch, #running-req: 1, #token: 21, token usage: 0.00, gen throughput (token/s): 41.90")


def run_scheduler_process(args, tp_rank: int, pipe, together):
    """`together` is a barrier of all ranks: the real ranks step in lockstep, so all of them have printed their
    traceback before the first SIGQUIT makes the parent kill the rest. Without it the fastest would often be alone."""
    set_title(f"sglang::scheduler_TP{tp_rank}")
    configure_logger(args, f"TP{tp_rank}")
    parent = os.getppid()
    try:
        scheduler = Scheduler(args, tp_rank, pipe)
        pipe.send("ready")
        if rate := scheduler.faults.get("chatty"):
            threading.Thread(target=scheduler.chatter, args=(float(rate),), daemon=True).start()
        scheduler.event_loop_normal()
    except Exception:
        told = traceback.format_exc()
        time.sleep(tp_rank * float(behaviour().get("stagger") or 0))
        logger.error(f"Scheduler hit an exception: {told}")
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait(20)
        os.kill(parent, signal.SIGQUIT)
        time.sleep(30)
