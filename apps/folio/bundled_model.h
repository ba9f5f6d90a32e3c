// The checkpoint that is part of the program: models/folio-tiny, as it was when the program was built.
#pragma once

#include <span>
#include <string_view>

namespace folio {

struct BundledFile {
  std::string_view name;  // inside the checkpoint's directory
  std::string_view bytes;
};

// Every file of the checkpoint. The views last as long as the program.
std::span<const BundledFile> bundled_model_files();

}  // namespace folio
