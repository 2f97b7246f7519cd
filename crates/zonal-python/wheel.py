"""Makes a wheel of the package and its library, and prints its path.

The same files make the same wheel: entries are sorted, and their times are --epoch. The tag of the
platform says which version of the GNU C library the library needs.
"""

import argparse
import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import time
import zipfile

HERE = pathlib.Path(__file__).parent

#: Libraries that every Linux of the tag manylinux has (PEP 599, PEP 600).
EVERYWHERE = (
    "ld-linux-",
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libpthread.so.0",
)

METADATA = """\
Metadata-Version: 2.1
Name: zonal
Version: {version}
Summary: Zoned drives, the files on them, and simulated drives
License: MIT OR Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Rust
Classifier: Typing :: Typed
Description-Content-Type: text/markdown

{readme}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: zonal
Root-Is-Purelib: false
Tag: {tag}
"""


def elf(library: pathlib.Path, option: str) -> str:
    command = ["readelf", option, "--wide", str(library)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def platform_tag(library: pathlib.Path) -> str:
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", elf(library, "--dynamic"))
    strange = [name for name in needed if not name.startswith(EVERYWHERE)]
    if strange:
        raise SystemExit(f"{library} needs {', '.join(strange)}, which a Linux need not have")
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", elf(library, "--version-info"))
    major, minor = max((int(major), int(minor)) for major, minor in versions)
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def digest(data: bytes) -> str:
    sum = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + sum.rstrip(b"=").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--epoch", type=int, required=True, help="seconds since 1970")
    parser.add_argument("--licence", type=pathlib.Path, action="append", default=[])
    parser.add_argument("--out", type=pathlib.Path, required=True, help="a folder")
    args = parser.parse_args()

    tag = f"cp39-abi3-{platform_tag(args.library)}"
    info = f"zonal-{args.version}.dist-info"
    package = HERE / "python"
    files = {
        str(path.relative_to(package)): path.read_bytes()
        for path in package.glob("zonal/*")
        if path.suffix in (".py", ".pyi", ".typed") or path.name == "py.typed"
    }
    files["zonal/_zonal.abi3.so"] = args.library.read_bytes()
    readme = (HERE / "README.md").read_text(encoding="utf-8")
    metadata = METADATA.format(version=args.version, readme=readme)
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = WHEEL.format(tag=tag).encode()
    for licence in args.licence:
        files[f"{info}/licenses/{licence.name}"] = licence.read_bytes()
    record = [f"{name},{digest(data)},{len(data)}" for name, data in sorted(files.items())]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""]).encode()

    wheel = args.out / f"zonal-{args.version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        # The record comes last, as PEP 427 advises.
        names = sorted(files, key=lambda name: (name.startswith(info), name.endswith("RECORD"), name))
        for name in names:
            entry = zipfile.ZipInfo(name, time.gmtime(args.epoch)[:6])
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            archive.writestr(entry, files[name])
    print(wheel)


if __name__ == "__main__":
    main()
