// Ctrl-C as a question that long work asks itself.
#pragma once

namespace folio {

// From now on the first SIGINT or SIGTERM only sets a flag; a second one ends the process as usual.
void catch_interrupts();

// Whether one has arrived.
bool interrupted();

}  // namespace folio
