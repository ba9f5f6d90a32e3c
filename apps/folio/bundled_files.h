// Files that are part of the program, as they were when it was built. The views last as long as the program.
#pragma once

#include <span>
#include <string_view>

namespace folio {

struct BundledFile {
  std::string_view name;  // without its directory
  std::string_view bytes;
};

// Every file of the checkpoint models/folio-tiny; pictures and logs stay out.
std::span<const BundledFile> bundled_model_files();
// Every file of the evaluation suite models/eval-tiny.
std::span<const BundledFile> bundled_eval_files();

}  // namespace folio
