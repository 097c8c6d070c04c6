"""A webhook receiver that runs in the box: keeps each request as a line of JSON, says 204, or 503 while it is told to.

Started by `installed.py` as a unit of its own: `python receiver.py FOLDER PORT`. Standard library only."""

from __future__ import annotations

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def serve(folder: Path, port: int) -> None:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            status = 503 if (folder / "down").exists() else 204
            kept = {"at": time.time(), "status": status, "headers": dict(self.headers), "body": body}
            with (folder / "requests").open("a") as file:
                file.write(json.dumps(kept) + "\n")
            self.send_response(status)
            self.end_headers()

        def log_message(self, *words: object) -> None:
            pass

    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
