"""Checks every #include under src/ and apps/ against the include table of the house (docs/architecture.md).

The table is not written down twice: it is read from the folio_room() lines of CMakeLists.txt. The rules:

- a source of src/ROOM includes ROOM and the rooms of its DEPENDS, nothing else; the table itself has no circles;
- a unit test or fuzzer (*_test.cpp, *_fuzz.cpp) may also include the rooms below those, to build what it needs;
- from some rooms only part is open to a room (NARROW);
- includes of our own files are written "room/file.h", from src/; apps/ may include every room and its own folder;
- CUDA headers, .cu and .cuh files stand only in src/ops/cuda and src/parallel; preprocessor conditions on the device
  only under src/ops.

Usage: include_table.py [ROOT]   (prints one line per violation; exit status 1 if there is one)
"""

import re
import sys
from pathlib import Path

SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
ROOM_LINE = re.compile(r"^\s*folio_room\(\s*(\w+)([^)]*)\)", re.MULTILINE)
CUDA_HEADER = re.compile(
    r"^(cuda\w*\.hp?p?|cuda/.*|cub/.*|thrust/.*|cute/.*|cutlass/.*|cublas\w*\.h|cudnn\w*\.h|curand\w*\.h|cusparse\w*\.h"
    r"|nccl\w*\.h|nvrtc\.h|nvml\.h|nvtx3?/.*|cooperative_groups.*|mma\.h|device_launch_parameters\.h)$")
DEVICE_CONDITION = re.compile(
    r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b.*\b(FOLIO_CUDA|__CUDACC__|__CUDA_ARCH__|__NVCC__)\b", re.MULTILINE)
CUDA_FOLDERS = ("src/ops/cuda/", "src/parallel/")
# (room, room it may include): the files that are open to it. The table's remarks in parentheses.
NARROW = {("engine", "tokenizer"): {"token_policy.h"}}


def read_table(cmake_text):
    """{room: set of the rooms that it names}, from the folio_room(NAME [DEPENDS ...] [LIBRARIES ...]) lines."""
    table = {}
    text = re.sub(r"#.*", "", cmake_text)
    for match in ROOM_LINE.finditer(text):
        words, depends, section = match.group(2).split(), set(), None
        for word in words:
            if word in ("DEPENDS", "LIBRARIES"):
                section = word
            elif section == "DEPENDS":
                depends.add(word)
        table[match.group(1)] = depends
    return table


def rooms_below(table, room):
    """Every room that can be reached from `room` along the table."""
    below, pending = set(), [room]
    while pending:
        for other in table.get(pending.pop(), ()):
            if other not in below:
                below.add(other)
                pending.append(other)
    return below


def check_table(table):
    violations = []
    if not table:
        violations.append("CMakeLists.txt: no folio_room() line found")
    for room, depends in sorted(table.items()):
        violations += [f"CMakeLists.txt: room {room} names {other}, which is no room"
                       for other in sorted(depends - table.keys())]
        if room in rooms_below(table, room):
            violations.append(f"CMakeLists.txt: room {room} depends on itself through a circle")
    return violations


def without_comments(text):
    """Blanks comments but keeps the line numbers. String literals need no care: an #include starts its line."""
    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return re.sub(r"/\*.*?\*/|//[^\n]*", blank, text, flags=re.DOTALL)


def may_include(table, room, file_name, other, header):
    """Why src/ROOM/file_name must not include other/header, or None."""
    if other == room:
        return None
    is_test = re.search(r"_(test|fuzz)\.cpp$", file_name)
    allowed = rooms_below(table, room) if is_test else table[room]
    if other not in allowed:
        return f"{room} may not include {other} (may: {', '.join(sorted(allowed)) or 'none'})"
    narrow = NARROW.get((room, other))
    if narrow and not is_test and header not in narrow:
        return f"of {other}, {room} may include only {', '.join(sorted(narrow))}"
    return None


def check_file(root, path, table):
    name = path.relative_to(root).as_posix()
    parts = name.split("/")
    room = parts[1] if parts[0] == "src" else None
    text = without_comments(path.read_text(encoding="utf-8", errors="replace"))
    violations = []

    def report(offset, message):
        violations.append(f"{name}:{text.count(chr(10), 0, offset) + 1}: {message}")

    on_device = name.startswith(CUDA_FOLDERS)
    if path.suffix in (".cu", ".cuh") and not on_device:
        violations.append(f"{name}: CUDA sources stand only in {' and '.join(CUDA_FOLDERS)}")
    for match in DEVICE_CONDITION.finditer(text):
        if not name.startswith("src/ops/"):
            report(match.start(), f"condition on {match.group(1)} outside src/ops")

    for match in INCLUDE.finditer(text):
        bracket, header = match.groups()
        first, _, rest = header.partition("/")
        if CUDA_HEADER.match(header):
            if not on_device:
                report(match.start(), f"CUDA header {header} outside {' and '.join(CUDA_FOLDERS)}")
        elif bracket == "<":
            if first in table and (root / "src" / header).is_file():
                report(match.start(), f'write #include "{header}", not <{header}>')
        elif rest and first in table:
            if not (root / "src" / header).is_file():
                report(match.start(), f'there is no src/{header}')
            reason = room and may_include(table, room, parts[-1], first, rest)
            if reason:
                report(match.start(), f'#include "{header}": {reason}')
        elif room or not (path.parent / header).is_file():
            report(match.start(), f'#include "{header}" is not of the form "room/file.h"')
    return violations


def check(root):
    table = read_table((root / "CMakeLists.txt").read_text(encoding="utf-8"))
    violations = check_table(table)
    files = [path for top in ("src", "apps") for path in sorted((root / top).rglob("*"))
             if path.is_file() and path.suffix in SUFFIXES]
    for path in files:
        parts = path.relative_to(root).parts
        if parts[0] == "src" and (len(parts) < 3 or parts[1] not in table):
            violations.append(f"{'/'.join(parts)}: not in a room that CMakeLists.txt declares")
        else:
            violations += check_file(root, path, table)
    return violations, len(table), len(files)


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
    violations, rooms, files = check(root)
    for violation in violations:
        print(violation)
    print(f"include table: {rooms} rooms, {files} files, {len(violations)} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
