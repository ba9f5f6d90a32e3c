#include "interrupt.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdint>

#include "base/error.h"

namespace folio {
namespace {

volatile std::sig_atomic_t seen = 0;

void remember(int) { seen = 1; }

// What a waiting poll sees, also when the signal came just before it or to another thread.
int wake_descriptor = -1;

void remember_and_wake(int) {
  const int error = errno;
  seen = 1;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_descriptor, &one, sizeof one);
  errno = error;
}

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = remember;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void catch_every_interrupt() {
  wake_descriptor = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  FOLIO_CHECK(wake_descriptor >= 0);
  struct sigaction action{};
  action.sa_handler = remember_and_wake;
  sigaction(SIGINT, &action, nullptr);
}

bool wait_readable(int descriptor) {
  pollfd ready[] = {{.fd = descriptor, .events = POLLIN, .revents = 0},
                    {.fd = wake_descriptor, .events = POLLIN, .revents = 0}};
  while (seen == 0) {
    if (poll(ready, 2, -1) > 0 && ready[0].revents != 0) return true;
  }
  return false;
}

bool take_interrupt() {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = ::read(wake_descriptor, &count, sizeof count);
  const bool taken = seen != 0;
  seen = 0;
  return taken;
}

void release_interrupts() {
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

bool interrupted() { return seen != 0; }

void check_interrupt() {
  if (interrupted()) throw CLI::RuntimeError(kInterruptedStatus);
}

}  // namespace folio
