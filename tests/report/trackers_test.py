#!/usr/bin/env python3
"""Runs that log to MLflow and W&B: servers that come and go, runs that are killed and resumed.

usage: trackers_test.py CAPSTAN [unittest's arguments]

The server is a stand-in on loopback that stores what MLflow would. Where the mlflow package is, a
real server is started, killed and restarted as well; where wandb is, it reads our file.
"""

import collections
import copy
import csv
import importlib.util
import json
import math
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.parse
import urllib.request
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CAPSTAN = None
# The columns of metrics.csv that a row may have, and trackers' names of them.
COLUMNS = ("loss", "learning_rate", "val_loss", "val_ppl", "epoch", "iter", "total_tokens")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """Stores experiments, runs, metrics and artifacts as MLflow does. It can be stopped and started."""

    def __init__(self):
        self.port = free_port()
        self.experiments, self.runs, self.artifacts = {}, {}, {}
        self.lose_answers = 0.0  # the share of requests that are served and not answered
        self.broken = False      # batches are answered with 500, as if the database were down
        self.deleted = set()     # experiments
        self.random = random.Random(3)
        self.lock = threading.Lock()
        self.http = None

    @property
    def uri(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                name = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query)["experiment_name"][0]
                if name in outer.experiments and name not in outer.deleted:
                    return self.answer(200, {"experiment": {"experiment_id": outer.experiments[name]}})
                return self.answer(404, {"error_code": "RESOURCE_DOES_NOT_EXIST"})

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.answer(*outer.serve(self.path, self.headers, body))

            def do_PUT(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.artifacts[self.path] = body
                self.answer(200, {})

            def answer(self, status, value):
                if outer.random.random() < outer.lose_answers:
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                text = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        class Http(ThreadingHTTPServer):
            daemon_threads = True
            allow_reuse_address = True

            def handle_error(self, *_):
                pass

        self.http = Http(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self):
        if self.http:
            self.http.shutdown()
            self.http.server_close()
            self.http = None

    def serve(self, path, headers, body):
        if headers.get("Content-Type") != "application/json":
            return 400, {"error_code": "INVALID_PARAMETER_VALUE"}
        ask = json.loads(body)
        what = path.removeprefix("/api/2.0/mlflow/")
        with self.lock:
            if what == "experiments/create":
                if ask["name"] in self.experiments:
                    return 400, {"error_code": "RESOURCE_ALREADY_EXISTS"}
                self.experiments[ask["name"]] = str(len(self.experiments) + 1)
                return 200, {"experiment_id": self.experiments[ask["name"]]}
            if what == "runs/search":
                wanted = ask["filter"].split("'")[1]
                found = [{"info": r["info"]} for r in self.runs.values() if r["tags"].get("capstan_id") == wanted]
                return 200, {"runs": found}
            if what == "runs/create":
                run_id = f"run{len(self.runs)}"
                info = {"run_id": run_id, "artifact_uri": f"mlflow-artifacts:/1/{run_id}/artifacts", "status": "RUNNING"}
                self.runs[run_id] = {"info": info, "name": ask["run_name"], "params": {}, "metrics": {},
                                     "tags": {t["key"]: t["value"] for t in ask["tags"]}}
                return 200, {"run": {"info": info}}
            run = self.runs[ask["run_id"]]
            if what == "runs/update":
                run["info"]["status"] = ask["status"]
                return 200, {}
            if what == "runs/log-batch" and self.broken:
                return 500, {"error_code": "INTERNAL_ERROR"}
            if what == "runs/log-batch":
                if len(ask.get("metrics", [])) > 1000 or len(ask.get("params", [])) > 100:
                    return 400, {"error_code": "INVALID_PARAMETER_VALUE"}
                for p in ask.get("params", []):
                    run["params"][p["key"]] = p["value"]
                for m in ask.get("metrics", []):
                    one = (m["key"], float(m["value"]), m["timestamp"], m["step"])
                    run["metrics"][one] = None  # once
                return 200, {}
        return 404, {}


class RealServer:
    """`mlflow server`, as people start it."""

    def __init__(self, folder):
        self.folder, self.port, self.process = folder, free_port(), None
        self.uri = f"http://127.0.0.1:{self.port}"

    def start(self):
        environment = {**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port), "--workers", "1",
             "--backend-store-uri", f"sqlite:///{self.folder}/m.db", "--artifacts-destination", f"{self.folder}/store"],
            env=environment, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        for _ in range(600):
            try:
                with urllib.request.urlopen(self.uri + "/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("mlflow server does not start")

    def stop(self):
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    def ask(self, what, body):
        request = urllib.request.Request(f"{self.uri}/api/2.0/mlflow/{what}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


def records_of(path):
    """The records of a W&B file: chunks put together, checked."""
    data = path.read_bytes()
    assert data[:7] == b":W&B\xe1\xbe\x00", data[:7]
    at, whole = 7, b""
    while at < len(data):
        if 32768 - at % 32768 < 7:
            at += 32768 - at % 32768
            continue
        crc, length, kind = struct.unpack_from("<IHB", data, at)
        chunk = data[at + 7:at + 7 + length]
        assert zlib.crc32(bytes([kind]) + chunk) == crc, f"wrong CRC at {at}"
        whole = chunk if kind in (1, 2) else whole + chunk
        at += 7 + length
        if kind in (1, 4):
            yield whole


def fields_of(message):
    at, fields = 0, collections.defaultdict(list)

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            fields[key >> 3].append(varint())
        else:
            size = varint()
            fields[key >> 3].append(message[at:at + size])
            at += size
    return fields


class TrackerTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        text = " ".join(f"the {i} of {i * i}" for i in range(400))
        (self.root / "text.txt").write_text(text)
        self.server = Server()
        self.addCleanup(self.server.stop)

    def words(self, loggers, steps, *more):
        return [CAPSTAN, "pretrain", "--data.train_data_path", "text.txt", "--model.hidden_size", "16",
                "--model.intermediate_size", "24", "--model.num_hidden_layers", "1", "--model.num_attention_heads", "2",
                "--train.max_seq_length", "32", "--train.global_batch_size", "2", "--train.micro_batch_size", "2",
                "--train.max_tokens", "null", "--train.lr_warmup_steps", "2", "--eval.interval", "5",
                "--train.max_steps", str(steps), "--logger_name", loggers, "--out_dir", "out/tiny", "--accelerator", "cpu",
                "--optimizer.lr", "0.01", *more]

    def environment(self, server=None):
        return {**os.environ, "MLFLOW_TRACKING_URI": (server or self.server).uri, "OMP_NUM_THREADS": "1"}

    def run_capstan(self, words, expect=0, server=None, env=None):
        done = subprocess.run(words, cwd=self.root, env=self.environment(server) | (env or {}), capture_output=True, text=True,
                              timeout=240, check=False)
        self.assertEqual(done.returncode, expect, done.stdout[-2000:] + done.stderr)
        return done.stdout + done.stderr

    def rows(self):
        newest = sorted((self.root / "out/tiny/logs/csv").glob("version_*"))[-1]
        with open(newest / "metrics.csv", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def assert_same(self, metrics):
        """Every value of metrics.csv is there once, in order."""
        for key in COLUMNS:
            expected = [(int(r["step"]), float(r[key])) for r in self.rows() if r[key] != ""]
            found = [(step, value) for name, value, _, step in metrics if name == key]
            self.assertEqual(found, expected, key)
        times = [time for name, _, time, _ in metrics if name == "loss"]
        self.assertEqual(times, sorted(times))

    def pasted(self, out, command):
        """The words that a shell reads of the command at the end of a line."""
        line, = (line for line in out.splitlines() if command in line)
        line = line[line.index(command):]
        return subprocess.run(["sh", "-c", "printf '%s\\0' " + line], cwd=self.root, capture_output=True, text=True,
                              check=True).stdout.split("\0")[:-1]

    def one_run(self):
        self.assertEqual(len(self.server.runs), 1)
        return next(iter(self.server.runs.values()))

    def test_mlflow(self):
        self.server.start()
        self.run_capstan(self.words("[mlflow, jsonl]", 12, "--log.project", "trees", "--log.run", "oak", "--log.group", "g"))
        run = self.one_run()
        self.assert_same(run["metrics"])
        self.assertEqual(run["info"]["status"], "FINISHED")
        self.assertEqual(run["name"], "oak")
        self.assertEqual(run["tags"]["group"], "g")
        self.assertEqual(run["params"]["train.max_steps"], "12")
        self.assertEqual(run["params"]["command"], "pretrain")
        self.assertIn("trees", self.server.experiments)
        self.assertTrue((self.root / "out/tiny/logs/jsonl/version_0/metrics.jsonl").exists())
        report = [v for k, v in self.server.artifacts.items() if k.endswith("/1/run0/artifacts/report.html")]
        self.assertEqual(report, [(self.root / "out/tiny/report.html").read_bytes()])

    def test_a_second_run_is_another_one_of_its_experiment(self):
        self.server.start()
        self.run_capstan(self.words("mlflow", 3))
        self.run_capstan(self.words("mlflow", 3, "--resume", "false"))
        self.assertEqual(len(self.server.runs), 2)
        self.assertEqual(len(self.server.experiments), 1)

    def test_answers_that_are_lost(self):
        self.server.lose_answers = 0.4
        self.server.start()
        self.run_capstan(self.words("mlflow", 60))
        self.server.lose_answers = 0
        self.run_capstan([CAPSTAN, "sync", "out/tiny"])
        self.assert_same(self.one_run()["metrics"])
        self.assertEqual(self.one_run()["info"]["status"], "FINISHED")

    def test_a_server_that_comes_and_goes(self):
        words = self.words("mlflow", 3000, "--train.log_interval", "5", "--eval.interval", "1000")
        process = subprocess.Popen(words, cwd=self.root, env=self.environment(), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        for _ in range(3):
            time.sleep(0.4)
            self.server.start()
            time.sleep(0.6)
            self.server.stop()
        self.server.start()
        out = process.communicate(timeout=200)[0]
        self.assertEqual(process.returncode, 0, out[-3000:])
        self.run_capstan([CAPSTAN, "sync", "out/tiny"])
        self.assert_same(self.one_run()["metrics"])

    def test_a_server_that_is_not_there(self):
        start = time.monotonic()
        name = "out/it's $(touch pasted)"  # the command that is shown for it can be pasted nevertheless
        out = self.run_capstan(self.words("[mlflow, wandb]", 10, "--out_dir", name))
        self.assertLess(time.monotonic() - start, 40)
        self.assertIn("the run goes on", out)
        self.assertEqual(self.pasted(out, "capstan sync "), ["capstan", "sync", name + "/logs/mlflow/version_0"])
        run, = (self.root / name / "logs/wandb").rglob("offline-run-*")
        self.assertEqual(self.pasted(out, "wandb sync "), ["wandb", "sync", str(run.relative_to(self.root))])
        self.assertFalse((self.root / "pasted").exists())
        (self.root / name).rename(self.root / "out/tiny")
        shutil.rmtree(self.root / "out/tiny/logs/wandb")  # there is no program to upload it
        self.assertIn("not sent", self.run_capstan([CAPSTAN, "sync", "out/tiny", "--timeout", "1"], expect=6))
        self.server.start()
        self.assertIn("sent", self.run_capstan([CAPSTAN, "sync", "out/tiny"]))
        self.assert_same(self.one_run()["metrics"])
        self.assertIn("everything has arrived", self.run_capstan([CAPSTAN, "sync", "out/tiny"]))

    def test_a_server_whose_database_is_down(self):
        self.server.broken = True
        self.server.start()
        self.assertIn("capstan sync ", self.run_capstan(self.words("mlflow", 10)))
        self.server.broken = False
        self.run_capstan([CAPSTAN, "sync", "out/tiny"])
        self.assert_same(self.one_run()["metrics"])

    def test_an_experiment_that_is_deleted(self):
        self.server.experiments["it's old"] = "9"
        self.server.deleted.add("it's old")
        self.server.start()
        out = self.run_capstan(self.words("mlflow", 10, "--log.project", "it's old"))
        self.assertLess(len(out.splitlines()), 120, out)
        self.server.deleted.clear()
        self.run_capstan([CAPSTAN, "sync", "out/tiny"])
        self.assert_same(self.one_run()["metrics"])

    def test_a_folder_that_was_moved_and_an_outbox_that_was_cut(self):
        self.run_capstan(self.words("mlflow", 10))
        (self.root / "out").rename(self.root / "elsewhere")
        box = self.root / "elsewhere/tiny/logs/mlflow/version_0"
        (box / "state.json").write_text('{"sent": 1000000}')
        with open(box / "outbox.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"file": "/etc/hostname", "as": "x"}) + "\n")
            file.write(json.dumps({"metrics": 7}) + "\n" + "[" * 100_000 + "\n")
        self.server.start()
        out = self.run_capstan([CAPSTAN, "sync", "elsewhere/tiny"])
        self.assertIn("not in the run's folder", out)
        self.assertEqual(out.count("is no record of a run"), 2, out)
        self.assertEqual([k for k in self.server.artifacts if k.endswith("/x")], [])
        self.assertTrue([k for k in self.server.artifacts if k.endswith("/report.html")])
        self.assertEqual(self.one_run()["info"]["status"], "FINISHED")

    def killed_and_resumed(self, loggers, server=None):
        words = self.words(loggers, 400000, "--train.save_interval", "50", "--resume", "auto", "--eval.interval", "1000",
                           "--train.schedule", "constant")
        chance = random.Random(7)
        for _ in range(3):
            process = subprocess.Popen(words, cwd=self.root, env=self.environment(server), stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            time.sleep(chance.uniform(0.5, 1.2))
            process.send_signal(signal.SIGKILL)
            process.wait()
        last = max((int(p.name[5:]) for p in (self.root / "out/tiny").glob("step-*")), default=0)
        self.assertGreater(last, 0)
        self.run_capstan(self.words(loggers, last + 40, "--train.save_interval", "50", "--resume", "auto",
                                    "--eval.interval", "1000", "--train.schedule", "constant"), server=server)
        return last

    def test_a_resumed_run_goes_on_under_its_id(self):
        self.server.start()
        self.killed_and_resumed("mlflow")
        run = self.one_run()
        self.assertEqual(run["info"]["status"], "FINISHED")
        # What was measured after the last checkpoint was measured again, with the same result.
        losses = [(step, value) for name, value, _, step in run["metrics"] if name == "loss"]
        self.assertEqual(len(losses), len(set(losses)))
        self.assertEqual(sorted(set(losses)), sorted(losses))
        expected = [(int(r["step"]), float(r["loss"])) for r in self.rows() if r["loss"]]
        self.assertTrue(set(expected) <= set(losses))
        self.assertEqual(sorted(s for s, _ in losses), sorted({s for s, _ in losses}))

    def test_a_wrong_address(self):
        for uri in ("file:///tmp/x", "sqlite:///x.db"):
            done = subprocess.run(self.words("mlflow", 2), cwd=self.root, env={**os.environ, "MLFLOW_TRACKING_URI": uri},
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 2)
            self.assertIn("MLFLOW_TRACKING_URI: expected", done.stderr)

    def wandb_rows(self):
        file, = (self.root / "out/tiny/logs/wandb").rglob("*.wandb")
        rows, run, ended = [], None, None
        for number, record in enumerate(records_of(file)):
            fields = fields_of(record)
            if number == 0:
                self.assertIn(21, fields)
            if 17 in fields:
                run = fields_of(fields[17][0])
            if 18 in fields:
                ended = fields_of(fields[18][0])
            for history in fields.get(2, []):
                items = [fields_of(item) for item in fields_of(history)[1]]
                rows.append({i[1][0].decode(): json.loads(i[16][0]) for i in items})
        return rows, run, ended

    def assert_same_wandb(self):
        rows, run, ended = self.wandb_rows()
        steps = [r["_step"] for r in rows]
        self.assertEqual(steps, sorted(set(steps)))
        for key in COLUMNS:
            expected = {int(r["step"]): float(r[key]) for r in self.rows() if r[key] != ""}
            found = {r["_step"]: r[key] for r in rows if key in r}
            if key in ("val_loss", "val_ppl"):  # the last validation of a step is what it shows
                self.assertEqual(set(found), set(expected), key)
            else:
                self.assertEqual(found, expected, key)
        return rows, run, ended

    def test_wandb(self):
        out = self.run_capstan(self.words("[wandb, csv]", 400, "--log.project", "trees", "--log.run", "elm"))
        self.assertIn("wandb sync ", out)
        rows, run, ended = self.assert_same_wandb()
        self.assertEqual(run[3], [b"trees"])
        self.assertEqual(run[8], [b"elm"])
        self.assertEqual(ended[1], [0])
        self.assertTrue(all(math.isfinite(r["_timestamp"]) and r["_runtime"] >= 0 for r in rows))
        config = {fields_of(i)[1][0]: json.loads(fields_of(i)[16][0]) for i in fields_of(run[4][0])[1]}
        self.assertEqual(config[b"train.max_steps"], "400")

    def test_wandb_resumed(self):
        self.killed_and_resumed("wandb")
        self.assert_same_wandb()

    def assert_all_is_there(self, what):
        """Whatever happened to the trackers' files, the run has ended, and they have all that it measured."""
        rows = self.rows()
        run = max(self.server.runs.values(), key=lambda r: len(r["metrics"]))
        self.assertEqual(run["info"]["status"], "FINISHED", what)
        for key in ("loss", "val_loss", "learning_rate"):
            expected = {(int(r["step"]), float(r[key])) for r in rows if r[key] != ""}
            self.assertLessEqual(expected, {(step, value) for name, value, _, step in run["metrics"] if name == key},
                                 f"{what}: {key}")
        files = list((self.root / "out/tiny/logs/wandb").rglob("*.wandb"))
        file, = (f for f in files if ".bad" not in f.parent.name)
        fields = [fields_of(record) for record in records_of(file)]
        steps = [int(fields_of(fields_of(f[2][0])[2][0])[1][0]) for f in fields if 2 in f]
        self.assertEqual(steps, sorted({int(r["step"]) for r in rows}), what)
        self.assertIn(18, fields[-1], f"{what}: no exit record")
        self.assertEqual(fields_of(fields[-1][18][0])[1], [0], what)

    def damage(self, change, what, name):
        """A run's tracker files are changed, and it is resumed: `change` takes and gives the file's bytes."""
        shutil.rmtree(self.root / "out", ignore_errors=True)
        shutil.copytree(self.root / "whole", self.root / "out")
        self.server.runs = copy.deepcopy(self.stored)
        path, = (self.root / "out/tiny/logs").rglob(name)
        before = path.read_bytes()
        after = change(before)
        if after is None:
            path.unlink()
        else:
            path.write_bytes(after)
        out = self.run_capstan(self.words("[mlflow, wandb]", 6, "--resume", "auto", "--train.save_interval", "2"))
        self.assertNotIn("bug in capstan", out)
        self.assert_all_is_there(f"{what} of {name}")
        return out

    def prepare_damage(self):
        self.server.start()
        self.run_capstan(self.words("[mlflow, wandb]", 4, "--train.save_interval", "2"))
        shutil.copytree(self.root / "out", self.root / "whole")
        shutil.rmtree(self.root / "whole/tiny/final")  # killed before: it goes on after step 2
        self.stored = copy.deepcopy(self.server.runs)

    def test_damaged_files(self):
        self.prepare_damage()
        deep = b'{"metrics":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
        wrong = json.dumps({"experiment": 1, "run": ["x"], "artifacts": None, "sent": "many"}).encode()
        for name, what, change, said in (
                ("state.json", "wrong types", lambda _: wrong, "state.json.bad"),
                ("state.json", "deep nesting", lambda _: deep, "state.json.bad"),
                ("state.json", "the id of another run", lambda b: b.replace(b"run0", b"run9"), "state.json.bad"),
                ("state.json", "nothing", lambda _: b"", "state.json.bad"),
                ("outbox.jsonl", "wrong types", lambda b: b.replace(b'{"metrics":{', b'{"metrics":7,"x":{', 2), "outbox.jsonl.bad"),
                ("outbox.jsonl", "deep nesting", lambda b: b + deep, "outbox.jsonl.bad"),
                ("outbox.jsonl", "no record of the run", lambda b: b[b.index(b"\n") + 1:], ""),
                ("outbox.jsonl", "nothing", lambda _: b"", ""),
                ("index", "wrong types", lambda b: b.replace(b"\n", b"\nx ", 1), ".bad"),
                ("index", "no file", lambda _: None, ".bad"),
                ("run-*.wandb", "another bit", lambda b: b[:300] + bytes([b[300] ^ 4]) + b[301:], ".bad"),
                ("run-*.wandb", "half of it", lambda b: b[:len(b) // 2], ".bad")):
            self.assertIn(said, self.damage(change, what, name), f"{what} of {name}")

    def test_damage_at_random(self):
        self.prepare_damage()
        seed = int(os.environ.get("CAPSTAN_SEED", random.randrange(2**32)))
        chance = random.Random(seed)

        def change(data):
            data = bytearray(data)
            for _ in range(chance.randint(1, 4)):
                at, length = chance.randrange(len(data) + 1), chance.randint(1, 200)
                kind = chance.randrange(4)
                if kind == 0:
                    data[at:at + 1] = bytes([chance.randrange(256)])
                elif kind == 1:
                    del data[at:at + length]
                elif kind == 2:
                    data[at:at] = data[at:at + length]
                else:
                    data[at:at + length] = bytes(length)
            return bytes(data)

        for i in range(int(os.environ.get("CAPSTAN_STORM", "8"))):
            name = ("state.json", "outbox.jsonl", "index", "run-*.wandb")[i % 4]
            self.damage(change, f"seed {seed}, change {i}", name)

    def test_a_tracker_that_cannot_write(self):
        """Its place is taken by files of other kinds: the run goes on without it."""
        logs = self.root / "out/tiny/logs"
        logs.mkdir(parents=True)
        (logs / "mlflow").write_text("")
        (logs / "wandb").write_text("")
        out = self.run_capstan(self.words("[mlflow, wandb]", 4))
        self.assertIn("MLflow: ", out)
        self.assertIn("W&B: ", out)
        self.assertIn("the run goes on", out)
        self.assertTrue((self.root / "out/tiny/final/model.safetensors").exists())

    def end_of_a_run(self, stop):
        """A run whose server does not answer: `stop` ends it; the next process tells the server, and does not train."""
        shutil.rmtree(self.root / "out", ignore_errors=True)
        self.server.runs.clear()
        hung = socket.create_server(("127.0.0.1", self.server.port))
        self.addCleanup(hung.close)
        words = self.words("[mlflow, wandb]", 6, "--resume", "auto")
        process = subprocess.Popen(words, cwd=self.root, env=self.environment(), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        try:
            said = stop(process)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        hung.close()
        final = self.root / "out/tiny/final/model.safetensors"
        self.assertTrue(final.exists(), said)
        unfinished = self.root / "out/tiny/.capstan-unfinished"
        before = final.stat().st_mtime_ns
        was_there = unfinished.exists()
        self.server.start()
        try:
            out = self.run_capstan(words)
        finally:
            self.server.stop()
        if was_there:
            self.assertIn("is made now", out)
        self.assertEqual(final.stat().st_mtime_ns, before)
        self.assertFalse(unfinished.exists())
        self.assert_all_is_there(said)
        self.assertIn("nothing left to do", self.run_capstan(words))

    def until(self, process, text):
        said = ""
        for line in process.stdout:
            said += line
            if text in line:
                return said
        self.fail(f"expected {text}, found {said}")

    def test_killed_while_it_waits_for_the_server(self):
        def stop(process):
            said = self.until(process, "MLflow: waiting for its server")
            self.assertTrue((self.root / "out/tiny/.capstan-unfinished").exists())
            self.assertTrue((self.root / "out/tiny/report.html").exists())
            process.kill()
            return said

        self.end_of_a_run(stop)

    def test_stopped_while_it_waits_for_the_server(self):
        def stop(process):
            self.until(process, "MLflow: waiting for its server")
            start = time.monotonic()
            process.terminate()
            said = process.stdout.read()
            self.assertEqual(process.wait(), 143, said)
            self.assertLess(time.monotonic() - start, 6, said)  # not ten seconds
            self.assertIn("trackers do not have all of it", said)
            return said

        self.end_of_a_run(stop)

    def test_killed_at_its_end(self):
        seed = int(os.environ.get("CAPSTAN_SEED", random.randrange(2**32)))
        chance = random.Random(seed)

        def stop(process):
            while process.poll() is None and not (self.root / "out/tiny/final").exists():
                time.sleep(0.002)
            after = chance.uniform(0, 0.7)
            time.sleep(after)
            process.kill()
            return f"seed {seed}, after {after} s"

        for _ in range(int(os.environ.get("CAPSTAN_STORM", "2"))):
            self.end_of_a_run(stop)

    def stand_in(self, script):
        """A program `wandb` on the PATH."""
        folder = self.root / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "wandb").write_text("#!/bin/sh\n" + script)
        (folder / "wandb").chmod(0o755)
        return {"PATH": f"{folder}:{os.environ['PATH']}"}

    def test_wandb_uploads(self):
        """Real `wandb sync` ends with 0 after errors, too: its mark counts."""
        works = 'echo "$@" >> "$2/called"; echo some words; touch "$2"/*.wandb.synced "$(echo "$2"/*.wandb).synced"'
        online = self.stand_in(works) | {"WANDB_MODE": "online"}
        out = self.run_capstan(self.words("wandb", 20), env=online)
        self.assertIn("W&B: the run is uploaded", out)
        run, = (self.root / "out/tiny/logs/wandb").rglob("offline-run-*")
        self.assertEqual((run / "called").read_text(), f"sync {run.relative_to(self.root)}\n")
        self.assertEqual((run / "logs/upload.log").read_text(), "some words\n")
        self.assertIn("everything has arrived", self.run_capstan([CAPSTAN, "sync", "out/tiny"], env=online))

        # Offline, and then by hand; a program that fails, that says nothing, that hangs, that is not there.
        out = self.run_capstan(self.words("wandb", 20, "--out_dir", "out/other"))
        self.assertIn("wandb sync ", out)
        for script, word in (("exit 3", "status 3"), ("exit 0", "did not mark the run"),
                             ("sleep 60", "did not end in 0.5 s"),
                             ("kill -9 $$", "was ended by signal 9"),
                             ("trap '' TERM; sleep 60; sleep 60", "did not end in 0.5 s")):
            out = self.run_capstan([CAPSTAN, "sync", "out/other", "--upload_timeout", "0.5"], expect=6,
                                   env=self.stand_in(script))
            self.assertIn(word, out)
            self.assertIn("W&B: 1 run not uploaded", out)
        out = self.run_capstan([CAPSTAN, "sync", "out/other"], expect=6, env={"PATH": "/nowhere"})
        self.assertIn("pip install wandb", out)
        self.assertIn("uploaded", self.run_capstan([CAPSTAN, "sync", "out/other"], env=self.stand_in(works)))

    @unittest.skipUnless(importlib.util.find_spec("wandb"), "wandb is not installed")
    def test_wandb_itself_reads_the_file(self):
        self.run_capstan(self.words("wandb", 200))
        file, = (self.root / "out/tiny/logs/wandb").rglob("*.wandb")
        from wandb.proto import wandb_internal_pb2
        from wandb.sdk.internal import datastore
        store = datastore.DataStore()
        store.open_for_scan(str(file))
        rows, kinds = 0, collections.Counter()
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            kinds[record.WhichOneof("record_type")] += 1
            if record.WhichOneof("record_type") == "history":
                self.assertEqual(record.history.step.num, json.loads(
                    next(i.value_json for i in record.history.item if i.key == "_step")))
                rows += 1
            if record.WhichOneof("record_type") == "run":
                self.assertEqual(record.run.project, "capstan")
                self.assertEqual(record.run.display_name, "tiny")
                self.assertGreater(record.run.start_time.seconds, 1_600_000_000)
        self.assertEqual(rows, len({r["step"] for r in self.rows()}))
        self.assertEqual((kinds["header"], kinds["run"], kinds["exit"]), (1, 1, 1))

    @unittest.skipUnless(importlib.util.find_spec("mlflow"), "mlflow is not installed")
    def test_a_real_server_killed_and_restarted(self):
        server = RealServer(self.root)
        self.addCleanup(server.stop)
        server.start()
        words = self.words("mlflow", 60000, "--train.log_interval", "100", "--train.max_time", "30")
        process = subprocess.Popen(words, cwd=self.root, env=self.environment(server), stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True)
        time.sleep(4)
        server.stop()
        time.sleep(2)
        server.start()
        out = process.communicate(timeout=300)[0]
        self.assertEqual(process.returncode, 0, out[-3000:])
        self.run_capstan([CAPSTAN, "sync", "out/tiny"], server=server)
        runs = server.ask("runs/search", {"experiment_ids": ["1"]})["runs"]
        self.assertEqual(len(runs), 1)
        self.assertEqual(runs[0]["info"]["status"], "FINISHED")
        for key in ("loss", "val_loss", "learning_rate"):
            history, token = [], ""
            while True:
                page = urllib.request.urlopen(
                    f"{server.uri}/api/2.0/mlflow/metrics/get-history?run_id={runs[0]['info']['run_id']}"
                    f"&metric_key={key}&max_results=5000{token}", timeout=30)
                answer = json.load(page)
                history += answer.get("metrics", [])
                if not answer.get("next_page_token"):
                    break
                token = "&page_token=" + answer["next_page_token"]
            found = [(int(m.get("step", 0)), m["value"]) for m in history]
            expected = [(int(r["step"]), float(r[key])) for r in self.rows() if r[key] != ""]
            self.assertEqual(sorted(found), sorted(expected), key)
        stored = list((self.root / "store").rglob("report.html"))
        self.assertEqual(len(stored), 1)


if __name__ == "__main__":
    CAPSTAN = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
