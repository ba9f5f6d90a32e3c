// The command line: parses flags, runs one subcommand, turns errors into one line on stderr and an exit status.
// Exit status: 0 success, 1 the work failed, 2 bad usage or bad input, 130 interrupted.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "commands.h"

namespace {

int exit_status(folio::ErrorCode code) {
  switch (code) {
    case folio::ErrorCode::kOutOfMemory:
    case folio::ErrorCode::kUnavailable:
    case folio::ErrorCode::kInternal:
      return 1;
    default:
      return 2;
  }
}

bool is_command(const CLI::App& app, const std::string& name) {
  const auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return command->get_name() == name; });
}

// What the command printed must have arrived: a full disk is no success. Returns the exit status.
int flush_output() {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0 && std::cout.flush().good()) return 0;
  std::fprintf(stderr, "folio: cannot write standard output: closed, or its disk is full\n");
  return 1;
}

// What the command does not know among the arguments: "" if nothing. It says more about a misspelt flag than that the
// right one is missing.
std::string unknown_argument(const CLI::App& app) {
  const std::vector<std::string> unknown = app.remaining(true);
  const auto flag =
      std::find_if(unknown.begin(), unknown.end(), [](const std::string& a) { return a.starts_with('-'); });
  if (flag != unknown.end()) return "unknown flag " + *flag;
  return unknown.empty() ? "" : "unexpected argument '" + unknown.front() + "'";
}

// The names of the command that was given and of its subcommands, each with a space behind it.
std::string given_command(const CLI::App& app) {
  std::string names;
  for (const CLI::App* at = &app; !at->get_subcommands().empty();) {
    at = at->get_subcommands().front();
    names += at->get_name() + " ";
  }
  return names;
}

void add_commands(CLI::App& app) {
  app.set_version_flag("--version", FOLIO_VERSION);
  app.require_subcommand(1);
  app.get_formatter()->column_width(44);
  app.option_defaults()->always_capture_default();
  folio::add_batch(app);
  folio::add_bench(app);
  folio::add_calibrate(app);
  folio::add_chat(app);
  folio::add_eval(app);
  folio::add_export_hidden(app);
  folio::add_fuzz(app);
  folio::add_logits(app);
  folio::add_make_checkpoint(app);
  folio::add_inspect(app);
  folio::add_render(app);
  folio::add_run(app);
  folio::add_serve(app);
  folio::add_tokenize(app);
  folio::add_detokenize(app);
  folio::add_validate(app);
}

int run(int argc, char** argv) {
  CLI::App app{"Folio: a native runtime for DeepSeek-V4.1"};
  add_commands(app);
  try {
    if (argc > 1 && argv[1][0] != '-' && !is_command(app, argv[1])) {
      throw folio::Error(folio::ErrorCode::kInvalidArgument,
                         folio::concat("no command '", argv[1], "' (see folio --help)"));
    }
    app.parse(argc, argv);
    return flush_output();
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::RuntimeError& status) {  // a command that ends with a status of its own
    return status.get_exit_code();
  } catch (const CLI::ParseError& error) {
    const std::string unknown = unknown_argument(app);
    std::fprintf(stderr, "folio: %s (see folio %s--help)\n", unknown.empty() ? error.what() : unknown.c_str(),
                 given_command(app).c_str());
    return 2;
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const folio::Error& error) {
    std::cout.flush();
    std::fprintf(stderr, "folio: %s\n", error.what());
    return exit_status(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "folio: %s\n", error.what());
    return 1;
  }
}
