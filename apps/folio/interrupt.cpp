#include "interrupt.h"

#include <CLI/CLI.hpp>
#include <csignal>

namespace folio {
namespace {

volatile std::sig_atomic_t seen = 0;

void remember(int) { seen = 1; }

}  // namespace

void catch_interrupts() {
  struct sigaction action{};
  action.sa_handler = remember;
  action.sa_flags = SA_RESETHAND | SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

void catch_every_interrupt() {
  struct sigaction action{};
  action.sa_handler = remember;
  sigaction(SIGINT, &action, nullptr);
}

bool take_interrupt() {
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
  constexpr int kInterruptedStatus = 128 + SIGINT;
  if (interrupted()) throw CLI::RuntimeError(kInterruptedStatus);
}

}  // namespace folio
