"""The record that announces a traceback: what SGLang, asyncio, threading and multiprocessing write above one.

In comes a record's text, out goes whether it announces one, and what that says of it: a request's, a thread's or a
process's end, or one that Python passes over. Called by `engine.lanes` and by all that judge what was raised. It must
not read the traceback itself.
"""

from __future__ import annotations

import re

_REQUEST_LEAD = re.compile(
    r"Exception in ASGI application|Exception in callback|Task exception was never retrieved|"
    r"Invalid HTTP request received|Exception happened during processing of request from|"
    r"Fatal error on (?:SSL )?(?:transport|protocol)|Fatal (?:read|write) error on (?:socket|pipe) transport|"
    r"SSL error in data received"
)
FATAL_LEAD = re.compile(
    r"(?:Scheduler|DetokenizerManager|Detokenizer|TpModelWorker\w*|TokenizerManager|ModelTpServer|Controller\w*|"
    r"DataParallelController|\w*Scheduler\w*|ModelRpcClient) hit an exception|Exception in ModelRpcClient|"
    r"router init state|Initialization failed"
)
_CHILD_LEAD = re.compile(r"Process \w*Process-\d+|Exception in thread ")
_THREAD_LEAD = "Exception in thread "
# Python passes over what a finalizer raised, and OpenTelemetry over what it could not send.
_IGNORED_LEAD = re.compile(r"Exception ignored (?:in|on|while)\b|Exception while exporting ")
# What asyncio writes between its announcement and the traceback.
_BELOW_LEAD = re.compile(r"(?:asyncgen|future|handle|protocol|socket|task|transport): ")
WORDS = (  # each lead-in holds one of them
    *("xception", "router init state", "Initialization failed", "Process-"),
    *("Invalid HTTP request", "Fatal error on ", "Fatal read error", "Fatal write error", "SSL error in"),
)


def lead_in(previous: str) -> str:
    """The record before a bare traceback header, if it announces the traceback."""
    if not any(word in previous for word in WORDS):
        return ""
    for pattern in (_REQUEST_LEAD, FATAL_LEAD, _CHILD_LEAD, _IGNORED_LEAD):
        if pattern.search(previous):
            return previous
    return ""


def goes_on(lead: str, text: str) -> bool:
    """Whether a line belongs to the announcement above it."""
    return _BELOW_LEAD.match(text) is not None and is_request(lead)


def is_request(lead: str) -> bool:
    return bool(_REQUEST_LEAD.search(lead))


def is_task(lead: str) -> bool:
    """Whether a task of asyncio's ended with what follows."""
    return "Task exception was never retrieved" in lead


def ends_server(lead: str) -> bool:
    """Whether SGLang ends itself with what follows, and writes no more: the front end kills all, itself too."""
    return "TokenizerManager hit an exception" in lead


def is_child(lead: str) -> bool:
    """Whether a thread or a process ended with what follows."""
    return bool(_CHILD_LEAD.search(lead))


def is_thread(lead: str) -> bool:
    """Whether a thread ended with what follows: nobody starts it again, though its process goes on."""
    return _THREAD_LEAD in lead


def is_ignored(lead: str) -> bool:
    """Whether what follows is passed over by whoever wrote it, and nothing ends with it."""
    return bool(_IGNORED_LEAD.search(lead))
