#include "ops/ref/reference_ops.h"

namespace folio {

std::unique_ptr<Ops> make_reference_ops() { return std::make_unique<ReferenceOps>(); }

}  // namespace folio
