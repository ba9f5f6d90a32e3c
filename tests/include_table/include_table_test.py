"""Plants violations in a small house of its own and expects include_table.py to name each of them."""

import tempfile
import unittest
from pathlib import Path

import include_table

CMAKE = """
folio_room(base LIBRARIES Threads::Threads)
folio_room(tensor DEPENDS base)
folio_room(tokenizer DEPENDS base)   # folio_room(comment DEPENDS nothing)
folio_room(ops DEPENDS tensor)
folio_room(engine
           DEPENDS ops tokenizer tensor
           LIBRARIES Threads::Threads)
"""
CLEAN = {
    "CMakeLists.txt": CMAKE,
    "src/base/error.h": "#include <string>\n",
    "src/tensor/view.h": '#include "base/error.h"\n',
    "src/tokenizer/token_policy.h": "",
    "src/tokenizer/bpe.h": "",
    "src/ops/linear.h": '#include "ops/linear_args.h"\n#include "tensor/view.h"\n',
    "src/ops/linear_args.h": "",
    "src/ops/linear_test.cpp": '#include "base/error.h"\n#include "ops/linear.h"\n#include <gtest/gtest.h>\n',
    "src/ops/cuda/linear.cu": "#include <cuda_runtime.h>\n#ifdef __CUDA_ARCH__\n#endif\n",
    "src/engine/engine.cpp": '#include "tokenizer/token_policy.h"\n// #include "server/http.h"\n/*\n#include "x.h"\n*/\n',
    "apps/folio/commands.h": "",
    "apps/folio/main.cpp": '#include "commands.h"\n#include "tokenizer/bpe.h"\n',
}


class IncludeTableTest(unittest.TestCase):
    def violations(self, changes):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name, text in {**CLEAN, **changes}.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text, encoding="utf-8")
            return include_table.check(root)[0]

    def planted(self, name, text, expected):
        found = self.violations({name: text})
        self.assertEqual(len(found), 1, found)
        self.assertIn(name, found[0])
        self.assertIn(expected, found[0])

    def test_clean_house(self):
        self.assertEqual(self.violations({}), [])

    def test_upward_include(self):
        self.planted("src/base/error.h", '\n#include "tensor/view.h"\n', "src/base/error.h:2: ")
        self.planted("src/tensor/view.h", '#  include "ops/linear.h"\n', "tensor may not include ops")

    def test_room_below_that_the_line_does_not_name(self):
        self.planted("src/ops/linear.cpp", '#include "base/error.h"\n', "ops may not include base (may: tensor)")

    def test_sideways_include(self):
        self.planted("src/ops/linear.cpp", '#include "tokenizer/bpe.h"\n', "ops may not include tokenizer")

    def test_unit_test_may_not_look_up(self):
        self.planted("src/ops/linear_test.cpp", '#include "tokenizer/bpe.h"\n', "ops may not include tokenizer")

    def test_closed_part_of_an_open_room(self):
        self.planted("src/engine/engine.cpp", '#include "tokenizer/bpe.h"\n', "only token_policy.h")

    def test_form_of_the_include(self):
        self.planted("src/ops/linear.cpp", '#include "linear.h"\n', "not of the form")
        self.planted("src/ops/linear.cpp", '#include "../tensor/view.h"\n', "not of the form")
        self.planted("src/ops/linear.cpp", '#include <tensor/view.h>\n', 'write #include "tensor/view.h"')
        self.planted("src/ops/linear.cpp", '#include "tensor/gone.h"\n', "there is no src/tensor/gone.h")

    def test_cuda_outside_its_folders(self):
        self.planted("src/tensor/buffer.cpp", "#include <cuda_runtime_api.h>\n", "CUDA header cuda_runtime_api.h")
        self.planted("src/ops/linear.cpp", "#include <cublasLt.h>\n", "CUDA header cublasLt.h")
        self.planted("apps/folio/main.cpp", "#include <cub/block/block_scan.cuh>\n", "CUDA header cub/")
        self.planted("src/tensor/fill.cu", "", "CUDA sources stand only in")
        self.planted("src/engine/engine.cpp", "#if defined(FOLIO_CUDA)\n#endif\n", "condition on FOLIO_CUDA")

    def test_folder_that_is_no_room(self):
        self.planted("src/attic/junk.h", "", "not in a room")
        self.planted("src/stray.h", "", "not in a room")

    def test_broken_tables(self):
        circle = CMAKE.replace("folio_room(base", "folio_room(base DEPENDS ops")
        self.assertIn("circle", "\n".join(self.violations({"CMakeLists.txt": circle})))
        unknown = CMAKE.replace("DEPENDS tensor)", "DEPENDS tensor cellar)")
        self.assertIn("cellar, which is no room", "\n".join(self.violations({"CMakeLists.txt": unknown})))
        self.assertIn("no folio_room() line", "\n".join(self.violations({"CMakeLists.txt": ""})))


if __name__ == "__main__":
    unittest.main()
