// Which processor this is.
#pragma once

#include <string>

namespace folio {

// The name that the processor gives itself, for instance "AMD EPYC"; "unknown" where the system does not say.
std::string processor_name();

}  // namespace folio
