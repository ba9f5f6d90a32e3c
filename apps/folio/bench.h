// The subcommands of `folio bench`.
#pragma once

#include <CLI/App.hpp>

namespace folio {

void add_bench_ops(CLI::App& bench);
void add_bench_step(CLI::App& bench);
void add_bench_engine(CLI::App& bench);
void add_bench_speculation(CLI::App& bench);
void add_bench_serve(CLI::App& bench);

}  // namespace folio
