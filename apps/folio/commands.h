// The subcommands of `folio`. Each lives in the file of its name, declares its flags on the application and runs from
// the callback that it sets; it reports failure by throwing folio::Error, which main() turns into one line and an exit
// status.
#pragma once

#include <CLI/App.hpp>

namespace folio {

void add_batch(CLI::App& app);
void add_bench(CLI::App& app);
void add_calibrate(CLI::App& app);
void add_chat(CLI::App& app);
void add_eval(CLI::App& app);
void add_export_hidden(CLI::App& app);
void add_fuzz(CLI::App& app);
void add_logits(CLI::App& app);
void add_make_checkpoint(CLI::App& app);
void add_inspect(CLI::App& app);
void add_render(CLI::App& app);
void add_run(CLI::App& app);
void add_serve(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_detokenize(CLI::App& app);
void add_validate(CLI::App& app);

}  // namespace folio
