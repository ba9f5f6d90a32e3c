// The files of a model on disk.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "tokenizer/tokenizer.h"

namespace folio {

// The files of a model, open and checked against each other; no weight has been read.
struct ModelFiles {
  Checkpoint checkpoint;
  Tokenizer tokenizer;
  std::vector<int32_t> compressed;  // compressed id of every token id; empty without Engram

  // Throws Error(kNotFound, kInvalidConfig, kInvalidCheckpoint, kInvalidTokenizer).
  static ModelFiles open(const std::string& dir);

  // Of the tables that steps read a few rows of, so that they need not fit in memory.
  int64_t engram_table_bytes() const;
};

}  // namespace folio
