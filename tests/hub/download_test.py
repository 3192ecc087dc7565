#!/usr/bin/env python3
"""`capstan download` against a hub on loopback, with every fault that the hub can have.

usage: download_test.py CAPSTAN [unittest's arguments]

Where the huggingface_hub package is, folders are also compared with those that it makes.
"""

import hashlib
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from test_hub import Hub, Repository, blob_sum

CAPSTAN = None
NAME = "maker/tiny"
COMMON = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5, "vocab_size": 259, "max_position_embeddings": 64, "tie_word_embeddings": False,
}


def content(size, seed):
    return random.Random(seed).randbytes(size)


def model_files(shards=2, size=200_000):
    files = {"config.json": json.dumps(COMMON).encode(), "generation_config.json": b"{}",
             "tokenizer.json": content(5000, 1), "tokenizer_config.json": b"{ }",
             "special_tokens_map.json": b"{}", "model.safetensors.index.json": b'{"weight_map": {}}'}
    for s in range(shards):
        files[f"model-{s + 1:05}-of-{shards:05}.safetensors"] = content(size + s, 10 + s)
    return files


# What must not be downloaded beside safetensors.
USELESS = {"pytorch_model.bin": content(60_000, 3), "original/consolidated.00.pth": content(70_000, 4),
           "consolidated.safetensors": content(50_000, 5), "model.gguf": content(40_000, 6), "README.md": b"# tiny",
           ".gitattributes": b"*.safetensors filter=lfs"}


class DownloadTest(unittest.TestCase):
    def setUp(self):
        self.hub = Hub()
        self.addCleanup(self.hub.close)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = pathlib.Path(self.folder.name)
        self.files = model_files()
        self.hub.repositories[NAME] = Repository({**self.files, **USELESS})

    def environment(self, **more):
        keep = {k: v for k, v in os.environ.items()
                if not k.startswith(("HF_", "SSL_CERT_")) and not k.lower().endswith(("_proxy", "_ca_bundle"))}
        return {**keep, "HF_ENDPOINT": self.hub.endpoint, "HF_HOME": str(self.root / "home"), "HOME": str(self.root),
                **more}

    def command(self, *words):
        return [CAPSTAN, "download", *words, "--timeout", "1"]

    def download(self, *words, expect=0, name=NAME, **environment):
        done = subprocess.run(self.command(name, *words), cwd=self.root, env=self.environment(**environment),
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def parts(self):
        return [p for p in (self.root / "checkpoints").rglob("*.incomplete") if p.stat().st_size > 10]

    def wait_for_parts(self):
        deadline = time.monotonic() + 10
        while not self.parts():
            self.assertLess(time.monotonic(), deadline, "nothing arrived")
            time.sleep(0.02)

    def found(self, name=NAME):
        folder = self.root / "checkpoints" / name
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*")
                if p.is_file() and ".cache" not in p.parts}

    def assert_whole(self, files=None):
        self.assertEqual(self.found(), files or self.files)
        left = [p.name for p in (self.root / "checkpoints").rglob("*.incomplete")]
        self.assertEqual(left, [])

    def test_names_that_are_none(self):
        for name in ("../x", "a/../b", "a/b/c", "/etc/passwd", "a/.b", "a b/c", "", "https://x.y/a"):
            out = self.download(expect=2, name=name)
            self.assertIn("expected the name", out, name)
        self.assertEqual(self.hub.requests, [])

    def test_what_a_model_needs(self):
        out = self.download()
        self.assert_whole()
        self.assertIn("LlamaForCausalLM", out)
        head = self.hub.repositories[NAME].head
        metadata = self.root / "checkpoints" / NAME / ".cache/huggingface/download/config.json.metadata"
        lines = metadata.read_text().split("\n")
        self.assertEqual(lines[:2], [head, blob_sum(self.files["config.json"])])
        self.assertAlmostEqual(float(lines[2]), time.time(), delta=60)
        before = len(self.hub.asked("hub", "/resolve/"))
        self.assertIn("everything is here already", self.download())
        self.assertEqual(len(self.hub.asked("hub", "/resolve/")), before)

    def test_pickles_where_there_is_nothing_else(self):
        files = {k: v for k, v in self.files.items() if "safetensors" not in k}
        self.hub.repositories[NAME] = Repository({**files, "pytorch_model.bin": USELESS["pytorch_model.bin"],
                                                  "training_args.bin": b"x"})
        self.download()
        self.assert_whole({**files, "pytorch_model.bin": USELESS["pytorch_model.bin"]})

    def test_an_adapter(self):
        files = {"adapter_config.json": b"{}", "adapter_model.safetensors": content(30_000, 8)}
        self.hub.repositories[NAME] = Repository(files)
        self.download()
        self.assert_whole(files)

    def test_the_tokenizer_alone(self):
        self.download("--tokenizer_only")
        self.assertNotIn("model-00001-of-00002.safetensors", self.found())
        self.assertIn("tokenizer.json", self.found())

    def test_a_repository_without_weights(self):
        self.hub.repositories[NAME] = Repository({"README.md": b"x"})
        self.assertIn("expected model.safetensors", self.download(expect=2))

    def test_many_pages_of_files(self):
        self.hub.faults.page = 2
        self.download()
        self.assert_whole()

    def test_names_that_leave_the_folder(self):
        for name in ("../evil.json", "/etc/evil.json", "a/../../config.json", "c:\\config.json"):
            self.hub.faults.extra = {name: b""}
            self.assertIn("refused", self.download(expect=4))
        self.assertFalse((self.root / "checkpoints" / "maker" / "evil.json").exists())

    def test_two_hundred_cuts(self):
        self.hub.faults.cuts = 200
        self.hub.faults.cut_within = 30_000
        self.files = model_files(size=2_000_000)
        self.hub.repositories[NAME] = Repository(self.files)
        self.download()
        self.assert_whole()
        self.assertEqual(self.hub.faults.cuts, 0)

    def test_kills_at_any_time(self):
        self.files = model_files(size=600_000)
        self.hub.repositories[NAME] = Repository(self.files)
        self.hub.faults.slow = 0.01
        chance = random.Random(5)
        kills = 0
        for _ in range(40):
            process = subprocess.Popen(self.command(NAME), cwd=self.root, env=self.environment(),
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                process.wait(timeout=chance.uniform(0.02, 0.15))
                if process.returncode == 0:
                    break
            except subprocess.TimeoutExpired:
                process.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM]))
                process.wait()
                kills += 1
            for name, value in self.found().items():
                self.assertEqual(value, self.files[name], name)
        self.assertGreater(kills, 4)
        self.hub.faults.slow = 0
        self.download()
        self.assert_whole()

    def test_an_interruption_says_how_to_go_on(self):
        self.hub.faults.slow = 0.05
        process = subprocess.Popen(self.command(NAME), cwd=self.root, env=self.environment(), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.wait_for_parts()
        process.send_signal(signal.SIGINT)
        out = process.communicate(timeout=20)[0]
        self.assertEqual(process.returncode, 130, out)
        self.assertIn("the same command goes on from here", out)
        self.hub.faults.slow = 0
        self.assertIn("of them here", self.download())
        self.assert_whole()
        self.assertTrue(any("Range" in r[3] for r in self.hub.asked("storage")))

    def test_an_interruption_before_anything_arrives(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(8)
            environment = self.environment(HF_ENDPOINT=f"http://127.0.0.1:{silent.getsockname()[1]}")
            process = subprocess.Popen([CAPSTAN, "download", NAME], cwd=self.root, env=environment,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.3)
            process.send_signal(signal.SIGINT)
            self.assertEqual(process.wait(timeout=5), 130)

    def test_a_stalled_connection(self):
        self.hub.faults.stalls = 2
        self.download()
        self.assert_whole()

    def test_a_flipped_bit(self):
        self.hub.faults.flips = 1
        self.assertIn("arrived damaged", self.download())
        self.assert_whole()

    def test_bits_that_always_flip(self):
        self.hub.faults.flips = 1000
        self.assertIn("expected a file with the checksum", self.download(expect=4))
        self.assertEqual(self.found(), {})
        self.hub.faults.flips = 0
        self.download()
        self.assert_whole()

    def test_damage_in_what_was_there(self):
        self.hub.faults.slow = 0.05
        process = subprocess.Popen(self.command(NAME), cwd=self.root, env=self.environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.wait_for_parts()
        process.kill()
        process.wait()
        self.hub.faults.slow = 0
        for part in self.parts():
            part.write_bytes(b"wrong" + part.read_bytes()[5:])
        self.download()
        self.assert_whole()

    def test_a_hub_that_is_busy_or_broken(self):
        self.hub.faults.busy = 2
        self.hub.faults.broken = 2
        self.assertIn("429", self.download())
        self.assert_whole()

    def test_no_hub(self):
        out = self.download(expect=6, HF_ENDPOINT="http://127.0.0.1:9")
        self.assertIn("times in a row", out)

    def test_links_that_expired(self):
        self.hub.faults.expired = 3
        self.download()
        self.assert_whole()

    def test_a_server_without_ranges(self):
        self.hub.faults.no_ranges = True
        self.hub.faults.cuts = 3
        self.download()
        self.assert_whole()

    def test_a_server_that_sends_the_wrong_range(self):
        self.hub.faults.cuts = 4
        self.hub.faults.wrong_range = 2
        self.download()
        self.assert_whole()

    def test_a_revision_that_changes_meanwhile(self):
        repository = self.hub.repositories[NAME]
        self.hub.faults.slow = 0.01
        changed = {**self.files, "model-00002-of-00002.safetensors": content(200_001, 99)}
        threading.Timer(0.15, lambda: repository.commit(changed)).start()
        self.download()
        self.assert_whole()
        time.sleep(0.2)
        self.hub.faults.slow = 0
        self.download()  # the new revision replaces what changed, and nothing else
        self.assert_whole(changed)

    def test_a_pinned_revision(self):
        old = self.hub.repositories[NAME].head
        self.hub.repositories[NAME].commit({**self.files, "config.json": b"{}"})
        self.download("--revision", old)
        self.assert_whole()
        self.assertIn("no revision 'v9'", self.download("--revision", "v9", expect=2))

    def test_files_changed_by_hand_are_found(self):
        self.download()
        path = self.root / "checkpoints" / NAME / "tokenizer.json"
        wrong = bytearray(path.read_bytes())
        wrong[7] ^= 1
        path.write_bytes(bytes(wrong))
        later = time.time() + 5
        os.utime(path, (later, later))
        self.assertIn("previous-1", self.download())
        kept = path.parent / "previous-1" / "tokenizer.json"
        self.assertEqual(kept.read_bytes(), bytes(wrong))  # somebody's work, perhaps
        shutil.rmtree(kept.parent)
        self.assert_whole()

    def test_what_the_cache_has_is_not_asked_for(self):
        name = "model-00001-of-00002.safetensors"
        blobs = self.root / "home/hub/models--maker--tiny/blobs"
        blobs.mkdir(parents=True)
        key = hashlib.sha256(self.files[name]).hexdigest()
        (blobs / key).write_bytes(self.files[name])
        self.download()
        self.assert_whole()
        self.assertEqual(self.hub.asked("storage", key), [])
        damaged = bytearray(self.files["tokenizer.json"])
        damaged[0] ^= 1
        (blobs / blob_sum(self.files["tokenizer.json"])).write_bytes(damaged)
        (self.root / "checkpoints" / NAME / "tokenizer.json").unlink()
        self.assertIn("is damaged in", self.download())
        self.assert_whole()

    def test_the_token_stays_with_its_host(self):
        secret = "hf_secret_of_mine"
        (self.root / "home").mkdir()
        (self.root / "home" / "token").write_text(secret + "\n")
        for environment in ({"HF_TOKEN": secret}, {}):
            self.hub.requests.clear()
            out = self.download("--revision", "main", **environment)
            self.assertNotIn(secret, out)
            for request in self.hub.asked("hub"):
                self.assertEqual(request[3].get("Authorization"), f"Bearer {secret}")
            if not environment:
                break
            self.assertTrue(self.hub.asked("storage"))
            for request in self.hub.asked("storage"):
                self.assertNotIn(secret, json.dumps(request))
        secrets = [p for p in (self.root / "checkpoints").rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]
        self.assertEqual(secrets, [])

    def test_refusals_say_what_to_do(self):
        self.hub.repositories[NAME].refusal = (403, "GatedRepo")
        out = self.download(expect=2)
        self.assertIn("accept its terms", out)
        self.assertIn("HF_TOKEN", out)
        self.hub.repositories[NAME].refusal = (401, "GatedRepo")
        self.assertIn("does not have access yet", self.download(expect=2, HF_TOKEN="hf_x"))
        out = self.download(expect=2, name="openlm-research/open_llama_77b")
        self.assertIn("not found at", out)
        self.assertIn("did you mean openlm-research/open_llama_7b", out)
        self.assertIn("--list", self.download(expect=2, name="nobody/nothing-at-all"))
        for word in ("1", "true", "YES"):
            self.assertIn("HF_HUB_OFFLINE", self.download(expect=2, HF_HUB_OFFLINE=word))
        self.hub.repositories[NAME].refusal = (401, "")
        self.assertIn("does not accept your token", self.download(expect=2, HF_TOKEN="hf_old"))

    def test_a_command_line_hides_its_token_and_the_program_says_what_is_better(self):
        secret = "hf_secret_of_mine"
        self.hub.faults.slow = 0.2
        for words in (("--access_token", secret), (f"--access_token={secret}",)):
            shutil.rmtree(self.root / "checkpoints", ignore_errors=True)
            self.hub.requests.clear()
            process = subprocess.Popen(self.command(NAME, "--tokenizer_only", *words), cwd=self.root, env=self.environment(),
                                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for _ in range(500):  # until it has asked for something
                if self.hub.requests:
                    break
                time.sleep(0.01)
            shown = pathlib.Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            out = process.communicate(timeout=60)[0].decode()
            self.assertEqual(process.returncode, 0, out)
            self.assertIn("--access_token", shown)
            self.assertNotIn(secret, shown)
            self.assertIn("set HF_TOKEN instead", out)
            self.assertEqual(self.hub.asked("hub")[0][3].get("Authorization"), f"Bearer {secret}")

    def test_passwords_in_urls_are_not_shown_and_plain_http_is_told(self):
        for endpoint in ("ftp://me:sesame@127.0.0.1:9", "http://me:sesame@127.0.0.1:bad", "http://me:sesame@127.0.0.1:9"):
            out = self.download(expect=2 if "9" not in endpoint[-2:] or "ftp" in endpoint else 6, HF_ENDPOINT=endpoint)
            self.assertNotIn("sesame", out, endpoint)
        # An address that is not this machine's, through a proxy that is: nothing leaves the machine.
        out = self.download(expect=6, HF_ENDPOINT="http://hub.invalid", HF_TOKEN="hf_x", http_proxy="http://127.0.0.1:9")
        self.assertIn("hub.invalid is plain http", out)
        self.assertNotIn("plain http", self.download(HF_TOKEN="hf_x"), "loopback is nobody's to read")

    def test_certificates_are_those_that_the_user_names(self):
        if shutil.which("openssl") is None:
            self.skipTest("no openssl")
        for name in ("ours", "another"):
            subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{name}.key", "-out", f"{name}.pem"],
                           cwd=self.root, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.root / "ours.pem", self.root / "ours.key")
        self.hub.hub.socket = context.wrap_socket(self.hub.hub.socket, server_side=True)
        self.hub.repositories[NAME] = Repository({k: v for k, v in self.files.items() if len(v) < 16000 and "index" not in k} |
                                                 {"model.safetensors": content(1000, 1)})
        endpoint = f"https://127.0.0.1:{self.hub.hub.server_port}"
        for variable in ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
            out = self.download(expect=5, HF_ENDPOINT=endpoint, **{variable: str(self.root / "another.pem")})
            self.assertIn("another.pem", out)
            self.download(HF_ENDPOINT=endpoint, **{variable: str(self.root / "ours.pem")})

    def test_known_names_need_no_owner(self):
        self.hub.repositories["openlm-research/open_llama_7b"] = Repository(self.files)
        self.download(name="open_llama_7b")
        self.assertEqual(self.found("openlm-research/open_llama_7b"), self.files)

    def test_two_at_once(self):
        self.hub.faults.slow = 0.05
        process = subprocess.Popen(self.command(NAME), cwd=self.root, env=self.environment(),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        self.assertIn("another process", self.download(expect=4))
        process.kill()
        process.wait()

    def test_a_file_larger_than_is_allowed(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        done = subprocess.run(self.command(NAME, "--at_once", "1"), cwd=self.root, env=self.environment(),
                              capture_output=True, text=True, timeout=60, check=False, preexec_fn=limit)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertIn("cannot write", done.stderr)
        self.assertNotIn("again in", done.stderr)
        self.assertNotIn("model-00001-of-00002.safetensors", self.found())
        self.download()
        self.assert_whole()

    @unittest.skipUnless(os.geteuid() == 0, "mounting needs root")
    def test_a_disk_that_is_too_small(self):
        disk = self.root / "checkpoints"
        disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], check=False,
                                 capture_output=True)
        if mounted.returncode != 0:
            self.skipTest("cannot mount here")
        try:
            out = self.download(expect=4)
            self.assertIn("free", out)
            self.assertEqual(self.hub.asked("hub", "/resolve/"), [])
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_training_offers_the_command(self):
        for words in (["finetune", NAME], ["finetune_full", "open_llama_7b"], ["generate", "checkpoints/" + NAME]):
            done = subprocess.run([CAPSTAN, *words], cwd=self.root, env=self.environment(), capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("capstan download " + (NAME if "7b" not in words[1] else "openlm-research/open_llama_7b"),
                          done.stderr)

    def test_the_folder_is_that_of_huggingface_hub(self):
        try:
            import huggingface_hub
        except ImportError:
            self.skipTest("huggingface_hub is not installed")
        code = ("import sys, huggingface_hub as h; h.snapshot_download(sys.argv[1], local_dir=sys.argv[2], "
                "ignore_patterns=['*.bin', 'original/*', 'consolidated*', '*.gguf', 'README.md', '.gitattributes'])")
        environment = self.environment(HF_HUB_DISABLE_XET="1", HF_HUB_DISABLE_TELEMETRY="1")
        target = self.root / "theirs"
        subprocess.run([sys.executable, "-c", code, NAME, target], env=environment, check=True, capture_output=True)
        self.download()
        ours = self.root / "checkpoints" / NAME
        names = sorted(str(p.relative_to(target)) for p in target.rglob("*") if p.is_file() and ".cache" not in p.parts)
        self.assertEqual(names, sorted(self.found()))
        for name in names:
            self.assertEqual((target / name).read_bytes(), (ours / name).read_bytes())
        # Theirs finds our folder complete.
        self.hub.requests.clear()
        subprocess.run([sys.executable, "-c", code, NAME, ours], env=environment, check=True, capture_output=True)
        self.assertEqual([r for r in self.hub.requests if r[1] == "GET" and "/resolve/" in r[2]], [],
                         huggingface_hub.__version__)
        self.assertEqual(self.hub.asked("storage"), [])


if __name__ == "__main__":
    CAPSTAN = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
