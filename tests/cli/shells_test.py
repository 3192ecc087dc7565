#!/usr/bin/env python3
"""Completions and the manual have every command and option, and shells accept them.

usage: shells_test.py CAPSTAN
"""

import re
import shutil
import subprocess
import sys
import tempfile


def output(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True, **more).stdout


def complete_in_bash(script, *words):
    listed = " ".join(f"'{w}'" for w in words)
    code = f"source {script}; COMP_WORDS=(capstan {listed}); COMP_CWORD={len(words)}; _capstan; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    return output("bash", "-c", code).split()


def main():
    capstan = sys.argv[1]
    commands = re.findall(r"^  (\w+)  ", output(capstan, "help"), re.M)
    assert {"download", "finetune", "plan", "sync"} <= set(commands), commands
    manual = output(capstan, "man").replace("\\-", "-")
    scripts = {shell: output(capstan, "completions", shell) for shell in ("bash", "zsh", "fish")}
    for command in commands:
        lines = re.findall(r"^  (-[\w.,-]+)", output(capstan, command, "--help"), re.M)
        options = {name for line in lines for name in line.split(",") if name.startswith("--")} - {"--help"}
        assert options or command in ("man", "completions"), command
        for option in options:
            assert f".B {option}\n" in manual, (command, option)
            for shell, script in scripts.items():
                assert (f"-l {option[2:]} " if shell == "fish" else option) in script, (shell, command, option)
    with tempfile.NamedTemporaryFile("w", suffix=".bash") as file:
        file.write(scripts["bash"])
        file.flush()
        assert complete_in_bash(file.name, "fine") == ["finetune_full", "finetune", "finetune_lora"]
        assert complete_in_bash(file.name, "finetune", "--train.keep_l") == ["--train.keep_last"]
        assert set(complete_in_bash(file.name, "finetune", "--strategy", "zero")) >= {"zero1", "zero3_offload"}
        assert complete_in_bash(file.name, "finetune", "--train.keep_best", "t") == ["true"]
        assert complete_in_bash(file.name, "download", "--li") == ["--list"]
    for shell, check in (("zsh", ["zsh", "-n"]), ("fish", ["fish", "--no-execute"])):
        if shutil.which(shell):
            with tempfile.NamedTemporaryFile("w") as file:
                file.write(scripts[shell])
                file.flush()
                output(*check, file.name)
    if shutil.which("man"):
        done = subprocess.run(["man", "-l", "--warnings", "-"], input=output(capstan, "man"), capture_output=True, text=True,
                              env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "MANWIDTH": "80"}, timeout=60, check=True)
        assert done.stderr == "", done.stderr
        assert "EXIT STATUS" in done.stdout
    print("completions and manual: in order")


if __name__ == "__main__":
    main()
