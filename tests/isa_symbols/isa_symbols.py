"""Checks that the translation units of wider instruction sets define nothing that the linker may share.

An inline function or template that is compiled in such a unit carries that unit's instructions. If another unit has the
same one, the linker keeps either copy for both, and a processor without the instructions may meet them. So every weak
symbol of these objects must lie in the namespace of its instruction set (src/ops/cpu/kernels.h).

Usage: isa_symbols.py OBJECT...   (objects of src/ops/cpu/kernels_ISA.cpp; prints one line per violation)
"""

import re
import subprocess
import sys

KERNELS = re.compile(r"kernels_(\w+)\.cpp\.o$")


def shared_symbols(path):
    """Names of weak and unique symbols that the object defines outside its namespace."""
    isa = KERNELS.search(path).group(1)
    listing = subprocess.run(["nm", "-C", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    names = []
    for line in listing.splitlines():
        kind, name = line.split(" ", 2)[1:]
        # The personality routine's reference is data, the same in every unit.
        if kind in "WVuwv" and f"folio::cpu::{isa}::" not in name and not name.startswith("DW.ref."):
            names.append(name)
    return names


def main():
    objects = [path for path in sys.argv[1:] if KERNELS.search(path)]
    violations = [f"{path}: {name}" for path in objects for name in shared_symbols(path)]
    print("\n".join(violations) if violations else f"{len(objects)} objects are fine")
    return 1 if violations or len(objects) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
