"""A Hugging Face Hub on loopback, with the faults of real networks on request.

Two servers: the hub itself, and the storage to which it redirects for large files. Both keep what was
asked of them, so that a test can look at what went over the wire.
"""

import hashlib
import json
import random
import socket
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LARGE = 1 << 14  # files of this size and more are in the storage


def blob_sum(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repository:
    """A name, its commits, and what a request for it is answered with."""

    def __init__(self, files, refusal=None):
        self.commits = {}
        self.head = None
        self.refusal = refusal  # (status, code): instead of an answer
        self.commit(files)

    def commit(self, files):
        sha = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        self.commits[sha] = dict(files)
        self.head = sha
        return sha


class Faults:
    """What goes wrong. Each is a number of times, or a function of the request's path."""

    def __init__(self):
        self.cuts = 0            # connections that end after some bytes
        self.cut_within = 1 << 40  # at most so many of them
        self.stalls = 0          # connections on which nothing more arrives
        self.flips = 0           # bodies with one wrong bit
        self.busy = 0            # answers 429, with Retry-After
        self.broken = 0          # answers 503
        self.expired = 0         # links to the storage that are refused
        self.no_ranges = False   # 200 and all bytes where a part was asked for
        self.wrong_range = 0     # 206 with other bytes than those asked for
        self.page = 1000         # files in a page of the listing
        self.slow = 0            # seconds for each piece of a body
        self.extra = {}          # entries of the listing that are no files of ours
        self.lock = threading.Lock()

    def take(self, name):
        with self.lock:
            left = getattr(self, name)
            if left:
                setattr(self, name, left - 1)
            return bool(left)


class Hub:
    def __init__(self):
        self.repositories = {}
        self.faults = Faults()
        self.requests = []  # (server, method, path, headers)
        self.random = random.Random(1)
        self.hub = self._serve("hub", self._answer_hub)
        self.storage = self._serve("storage", self._answer_storage)

    @property
    def endpoint(self):
        return f"http://127.0.0.1:{self.hub.server_port}"

    def close(self):
        for server in (self.hub, self.storage):
            server.shutdown()
            server.server_close()

    def asked(self, server, part=""):
        return [r for r in self.requests if r[0] == server and part in r[2]]

    def _serve(self, name, answer):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                outer.requests.append((name, self.command, self.path, dict(self.headers)))
                try:
                    answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def handle_error(self, *_):
                pass  # clients may go away at any time

        server = Server(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    @staticmethod
    def _reply(request, status, body=b"", headers=()):
        request.send_response(status)
        for key, value in headers:
            request.send_header(key, value)
        if not any(key == "Content-Length" for key, _ in headers):
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def _json(self, request, value, headers=()):
        self._reply(request, 200, json.dumps(value).encode(), [("Content-Type", "application/json"), *headers])

    def _refuse(self, request, status, code):
        self._reply(request, status, b'{"error":"refused"}', [("X-Error-Code", code), ("X-Error-Message", code)] if code else [])

    def _answer_hub(self, request):
        if self.faults.take("busy"):
            return self._reply(request, 429, b"slow down", [("Retry-After", "1")])
        if self.faults.take("broken"):
            return self._reply(request, 503, b"broken")
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        query = urllib.parse.parse_qs(urllib.parse.urlsplit(request.path).query)
        parts = path.strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        if api:
            parts = parts[2:]
        word = next((w for w in ("revision", "tree", "resolve") if w in parts), None)
        at = parts.index(word) if word else len(parts)
        repository = self.repositories.get("/".join(parts[:at]))
        if repository is None:
            return self._refuse(request, 404 if "Authorization" in request.headers else 401, "RepoNotFound")
        if repository.refusal:
            return self._refuse(request, *repository.refusal)
        revision = parts[at + 1] if word else "main"
        commit = repository.head if revision == "main" else revision
        files = repository.commits.get(commit)
        if files is None:
            return self._refuse(request, 404, "RevisionNotFound")
        if api and word != "tree":
            siblings = [{"rfilename": name} for name in files]
            return self._json(request, {"id": "/".join(parts[:at]), "sha": commit, "siblings": siblings,
                                        "private": False, "tags": [], "downloads": 0})
        if api:
            return self._list(request, files, query)
        name = "/".join(parts[at + 2:])
        if name not in files:
            return self._refuse(request, 404, "EntryNotFound")
        self._resolve(request, commit, name, files[name])

    def _list(self, request, files, query):
        entries = []
        for name, content in files.items():
            entry = {"type": "file", "oid": blob_sum(content), "size": len(content), "path": name}
            if len(content) >= LARGE:
                entry["lfs"] = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        entries += [{"type": "directory", "oid": "0" * 40, "size": 0, "path": "original"}]
        entries += [{"type": "file", "oid": "0" * 40, "size": 1, "path": name} for name in self.faults.extra]
        first = int(query.get("cursor", ["0"])[0])
        last = first + self.faults.page
        headers = []
        if last < len(entries):
            headers = [("Link", f'<{self.endpoint}{request.path.split("?")[0]}?recursive=true&cursor={last}>; rel="next"')]
        self._json(request, entries[first:last], headers)

    def _resolve(self, request, commit, name, content):
        common = [("X-Repo-Commit", commit), ("Accept-Ranges", "bytes")]
        if len(content) < LARGE:
            return self._send(request, content, [*common, ("ETag", f'"{blob_sum(content)}"')])
        key = hashlib.sha256(content).hexdigest()
        link = f"http://localhost:{self.storage.server_port}/{commit}/{key}?signature=1"
        self.contents = getattr(self, "contents", {})
        self.contents[key] = content
        self._reply(request, 302, b"", [*common, ("X-Linked-Etag", f'"{key}"'), ("X-Linked-Size", str(len(content))),
                                        ("Location", link)])

    def _answer_storage(self, request):
        if self.faults.take("expired"):
            return self._reply(request, 403, b"expired")
        key = urllib.parse.urlsplit(request.path).path.split("/")[-1]
        self._send(request, self.contents[key], [("ETag", f'"{key}"'), ("Accept-Ranges", "bytes")])

    def _send(self, request, content, headers):
        first, asked = 0, request.headers.get("Range")
        status = 200
        if asked and not self.faults.no_ranges:
            first = int(asked.split("=")[1].split("-")[0])
            if first >= len(content):
                return self._reply(request, 416)
            if self.faults.take("wrong_range"):
                first = max(0, first - 1)
            status = 206
            headers = [*headers, ("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")]
        body = content[first:]
        if request.command != "HEAD" and len(body) > 0 and self.faults.take("flips"):
            at = self.random.randrange(len(body))
            body = body[:at] + bytes([body[at] ^ 1]) + body[at + 1:]
        request.send_response(status)
        for key, value in [*headers, ("Content-Length", str(len(body)))]:
            request.send_header(key, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        if len(body) > 1 and self.faults.take("cuts"):
            request.wfile.write(body[: self.random.randrange(1, min(len(body), self.faults.cut_within))])
            return self._close(request)
        if len(body) > 1 and self.faults.take("stalls"):
            request.wfile.write(body[: len(body) // 2])
            request.wfile.flush()
            time.sleep(20)
            return self._close(request)
        if self.faults.slow:
            for at in range(0, len(body), 1 << 14):
                request.wfile.write(body[at:at + (1 << 14)])
                time.sleep(self.faults.slow)
        else:
            request.wfile.write(body)

    @staticmethod
    def _close(request):
        request.wfile.flush()
        request.connection.shutdown(socket.SHUT_RDWR)
        request.close_connection = True
