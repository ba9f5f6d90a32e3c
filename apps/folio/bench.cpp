// folio bench: measurements, one subcommand each.
#include "bench.h"

#include "commands.h"

namespace folio {

void add_bench(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure speed as fractions of what the machine can do");
  bench->require_subcommand(1);
  add_bench_ops(*bench);
  add_bench_step(*bench);
  add_bench_engine(*bench);
  add_bench_speculation(*bench);
  add_bench_serve(*bench);
}

}  // namespace folio
