// Ctrl-C as a question that long work asks itself.
#pragma once

namespace folio {

// Exit status of a command that was interrupted: 128 and the number of SIGINT.
constexpr int kInterruptedStatus = 130;

// From now on the first SIGINT or SIGTERM only sets a flag; a second one ends the process as usual.
void catch_interrupts();

// From now on every SIGINT only sets a flag that take_interrupt() clears, and ends a system call that waits; SIGTERM
// ends the process as usual.
void catch_every_interrupt();

// Waits until `descriptor` can be read, and returns true; false when a SIGINT has arrived that nobody has taken, be it
// before the call. Only after catch_every_interrupt().
bool wait_readable(int descriptor);

// Whether one has arrived since the last call.
bool take_interrupt();

// From now on they end the process as usual again.
void release_interrupts();

// Whether one has arrived.
bool interrupted();

// Ends the command with the exit status of an interrupt when one has arrived: throws CLI::RuntimeError, so that
// unfinished files are removed on the way out.
void check_interrupt();

}  // namespace folio
