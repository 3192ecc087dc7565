"""Packages are hardened, which tools/check_hardening.sh notices, and their container is not root's.

usage: hardening_test.py SOURCE_FOLDER CMAKE
"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

# Something for each protection: an array to guard, and a call that the C library can check.
PROGRAM = """
#include <cstdio>
#include <cstring>
int main(int, char** argv) {
  char text[32];
  std::strcpy(text, argv[0]);
  return std::puts(text) < 0;
}
"""


def flags_of_packages(source: str, cmake: str, build: pathlib.Path) -> tuple[list[str], list[str]]:
    """Of the compiler, for an ordinary file, and of the linker, for every program and module."""
    subprocess.run([cmake, "--preset", "package", "-S", source, "-B", build, "--log-level=ERROR"],
                   check=True, stdout=subprocess.DEVNULL)
    commands = json.loads((build / "compile_commands.json").read_text())
    words = next(shlex.split(c["command"]) for c in commands if "capstan_base.dir" in c["command"])
    compiler = [w for w in words[1:] if re.match(r"-[fmDUO]", w)]
    rules = re.split(r"\n(?=build )", (build / "build.ninja").read_text())
    linked = [r for r in rules if re.search(r"^build [^\n]*: CXX_(EXECUTABLE|MODULE_LIBRARY)_LINKER", r)]
    linker = [re.findall(r"-Wl,-z\S*", r) for r in linked]
    assert linker and all(flags == linker[0] for flags in linker), linker
    return compiler, linker[0]


def main() -> None:
    source, cmake = sys.argv[1:]
    check = str(pathlib.Path(source) / "tools" / "check_hardening.sh")
    with tempfile.TemporaryDirectory() as folder:
        build = pathlib.Path(folder)
        compiler, linker = flags_of_packages(source, cmake, build)
        (build / "a.cpp").write_text(PROGRAM)

        def checked(*flags: str) -> subprocess.CompletedProcess:
            subprocess.run(["c++", build / "a.cpp", "-o", build / "a", *flags], check=True)
            return subprocess.run([check, build / "a"], capture_output=True, text=True)

        good = checked(*compiler, *linker)
        assert good.returncode == 0, good.stdout + good.stderr
        bare = checked("-O2", "-U_FORTIFY_SOURCE", "-fno-stack-protector", "-no-pie", "-z", "norelro", "-z",
                       "lazy", "-z", "execstack")
        assert bare.returncode == 1 and len(bare.stdout.splitlines()) == 6, bare.stdout + bare.stderr
    assert "check_hardening.sh" in (pathlib.Path(source) / "do").read_text()
    final = (pathlib.Path(source) / "Dockerfile").read_text().rsplit("\nFROM ", 1)[1]
    assert "--uid 1000" in final and re.findall(r"^USER (.*)", final, re.M) == ["1000:1000"], "root runs it"


if __name__ == "__main__":
    main()
