// A list of byte copies to run before a step, in stages.
#pragma once

#include <span>
#include <vector>

#include "cache/geometry.h"
#include "ops/ops.h"

namespace folio {

// The ranges of one stage are independent of each other (ops/copy.h); a stage begins when the one before is done.
class CopyPlan {
 public:
  // What is added from here on sees the effects of what was added before.
  void begin_stage();
  void add(const std::byte* source, std::byte* destination, int64_t bytes);
  // Streams the bytes of `from` (ranges of the memory at `source`), in order, into those of `to` (ranges of the memory
  // at `destination`), which must hold at least as many; where they are cut differently, the copies are cut at both.
  void stream(const std::byte* source, std::span<const MemoryRange> from, std::byte* destination,
              std::span<const MemoryRange> to);
  // Appends the stages of `other` behind those that are here.
  void append(const CopyPlan& other);

  bool empty() const { return ranges_.empty(); }
  void clear();
  int64_t bytes() const;
  // All ranges, stage after stage; stage i ends before stage_ends()[i].
  const std::vector<CopyRange>& ranges() const { return ranges_; }
  const std::vector<int32_t>& stage_ends() const { return stage_ends_; }

  // One call of the op for each stage.
  void run(Ops& ops) const;

 private:
  std::vector<CopyRange> ranges_;
  std::vector<int32_t> stage_ends_;  // of every stage that has a range
  bool stage_open_ = false;
};

}  // namespace folio
