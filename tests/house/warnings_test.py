"""Warnings are errors where `./do test` asks for it, and nowhere else.

usage: warnings_test.py SOURCE_FOLDER CMAKE
"""

import pathlib
import re
import subprocess
import sys
import tempfile


def stops_at_warnings(source: str, cmake: str, *options: str) -> bool:
    """Configures a tree of its own, as for the presets' program, and looks at what is compiled."""
    with tempfile.TemporaryDirectory() as build:
        subprocess.run([cmake, "-S", source, "-B", build, "-G", "Ninja", "-DCAPSTAN_TESTS=OFF", *options],
                       check=True, stdout=subprocess.DEVNULL)
        return "-Werror" in (pathlib.Path(build) / "compile_commands.json").read_text()


def main() -> None:
    source, cmake = sys.argv[1:]
    assert not stops_at_warnings(source, cmake), "whoever builds to use it is stopped by a warning"
    assert stops_at_warnings(source, cmake, "-DCAPSTAN_WERROR=ON")
    script = (pathlib.Path(source) / "do").read_text()
    body = re.search(r"^do_test\(\) \{.*?^\}", script, re.MULTILINE | re.DOTALL).group(0)
    assert "STRICT=1" in body, "./do test does not turn warnings into errors"
    presets = (pathlib.Path(source) / "CMakePresets.json").read_text()
    assert "CAPSTAN_WERROR" not in presets, "a preset decides for whoever builds"


if __name__ == "__main__":
    main()
