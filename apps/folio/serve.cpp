// folio serve: the HTTP server.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "base/memory.h"
#include "commands.h"
#include "engine/engine.h"
#include "engine_flags.h"
#include "interrupt.h"
#include "model_flags.h"
#include "server/http_server.h"
#include "server/service.h"

namespace folio {
namespace {

constexpr const char* kKeyVariable = "FOLIO_API_KEY";
// Choices that the engine takes beyond those that the server lets in: it counts one as finished a little later.
constexpr int64_t kEngineSlack = 4096;
constexpr size_t kMaxTokenizerConfig = size_t{16} << 20;

struct ServeFlags {
  ModelFlags model;
  EngineFlags engine;
  HttpOptions http;
  ServiceOptions service;
  std::vector<std::string> names;
  std::string api_key_file;
  int64_t default_max_tokens = 0;
  int64_t max_body_mib = 64;
  bool no_thinking = false;
  bool no_access_log = false;
  std::string developer_role = "system";
  std::string unclosed_think = "reasoning";
  bool special_in_user_text = false;
  bool stream_reasoning = false;
  bool schema_in_prompt = false;
};

std::vector<std::string> api_keys(const ServeFlags& flags) {
  std::vector<std::string> keys = flags.service.api_keys;
  if (!flags.api_key_file.empty()) {
    const auto from_file = read_key_file(flags.api_key_file);
    keys.insert(keys.end(), from_file.begin(), from_file.end());
  }
  if (const char* key = std::getenv(kKeyVariable); key != nullptr && *key != '\0') keys.emplace_back(key);
  for (const std::string& key : keys) {
    if (key.empty()) fail(ErrorCode::kInvalidArgument, "--api-key must not be empty");
  }
  return keys;
}

ServedModel served_model(const ServeFlags& flags, const std::string& dir, const ModelFiles& files,
                         const ModelRunner& runner) {
  const Config& config = files.checkpoint.config();
  ServedModel model;
  model.names = flags.names;
  if (model.names.empty()) model.names = {std::filesystem::path(dir).lexically_normal().filename().string()};
  model.root = dir;
  model.tokenizer = &files.tokenizer;
  const std::string tokenizer_config = (std::filesystem::path(dir) / "tokenizer_config.json").string();
  if (std::filesystem::exists(tokenizer_config)) {
    model.tokenizer_config = read_file(tokenizer_config, kMaxTokenizerConfig);
  }
  model.vocab_size = config.vocab_size;
  model.max_model_len = runner.max_model_len();
  model.bos_token_id = config.bos_token_id;
  model.eos_token_id = config.eos_token_id;
  model.pad_token_id = config.pad_token_id;
  model.block_size = runner.capacity().block_size;
  model.default_max_tokens = flags.default_max_tokens;
  model.thinking.on = !flags.no_thinking;
  model.developer_role = flags.developer_role == "user" ? DeveloperRole::kUser : DeveloperRole::kSystem;
  model.special_in_user_text = flags.special_in_user_text;
  model.unclosed_think_content = flags.unclosed_think == "content";
  model.reasoning_alias = flags.stream_reasoning;
  model.schema_in_prompt = flags.schema_in_prompt;
  return model;
}

bool is_loopback(const std::string& host) { return host == "localhost" || host == "::1" || host.starts_with("127."); }

// Ends the engine before the service whose mailbox it writes to.
struct EngineStop {
  explicit EngineStop(Engine& the_engine) : engine(the_engine) {}
  ~EngineStop() { engine.shutdown(); }
  EngineStop(const EngineStop&) = delete;
  EngineStop& operator=(const EngineStop&) = delete;
  Engine& engine;
};

void serve(const ServeFlags& flags) {
  ServiceOptions options = flags.service;
  options.api_keys = api_keys(flags);
  options.access_log = !flags.no_access_log;
  options.version = FOLIO_VERSION;
  HttpOptions http = flags.http;
  http.limits.max_body_bytes = flags.max_body_mib << 20;
  http.limits.max_bodies_bytes = std::max(http.limits.max_bodies_bytes, 2 * http.limits.max_body_bytes);
  if (!is_loopback(http.host) && options.api_keys.empty()) {
    std::fprintf(stderr, "folio: warning: --host %s can be reached from other machines and there is no --api-key\n",
                 http.host.c_str());
  }

  const std::string dir = model_dir(flags.model);
  const ModelFiles files = ModelFiles::open(dir);
  EngineSetup setup = engine_setup(flags.model, flags.engine, files);
  setup.runner.cached_requests = setup.runner.max_num_seqs;
  check_setup(setup, files.checkpoint.config());
  ModelRunner runner(files, setup.runner);
  Engine engine(runner, setup.engine, options.max_requests + kEngineSlack);
  EngineBackend backend(engine);
  Service service(served_model(flags, dir, files, runner), backend, options);
  HttpServer server(http, service);
  service.connect(server);
  const EngineStop stop(engine);
  note_default_model(flags.model);
  note_acceptance(setup.engine);
  std::fprintf(stderr, "folio: serving %s at %s://%s:%d\n", dir.c_str(), http.tls_cert.empty() ? "http" : "https",
               http.host.c_str(), server.port());
  server.run();
  if (service.first_signal() == SIGINT) throw CLI::RuntimeError(kInterruptedStatus);
}

void add_listen_flags(CLI::App& command, ServeFlags& flags) {
  const std::string group = "Network";
  HttpLimits& limits = flags.http.limits;
  command.add_option("--host", flags.http.host, "Address to listen on; 0.0.0.0: all")->type_name("HOST")->group(group);
  command.add_option("--port", flags.http.port, "Port to listen on; 0: any free one")->type_name("N")->group(group);
  command.add_option("--tls-cert", flags.http.tls_cert, "Certificate chain; with it the server speaks HTTPS")
      ->type_name("F.pem")
      ->group(group);
  command.add_option("--tls-key", flags.http.tls_key, "Private key of the certificate")
      ->type_name("F.pem")
      ->group(group);
  command
      .add_option("--cors", flags.service.cors_origins,
                  "Origin whose pages may call the server; *: any; may be repeated")
      ->type_name("ORIGIN")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  command.add_option("--max-connections", limits.max_connections, "Open connections")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->group(group);
  command.add_option("--max-body-size", flags.max_body_mib, "Largest request body")
      ->type_name("MIB")
      ->check(CLI::Range(int64_t{1}, int64_t{4096}))
      ->group(group);
  command
      .add_option("--header-timeout", limits.header_seconds, "From a request's first byte to the end of its headers")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 1e6))
      ->group(group);
  command.add_option("--body-timeout", limits.body_seconds, "Without a byte of a body")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 1e6))
      ->group(group);
  command.add_option("--idle-timeout", limits.idle_seconds, "Between two requests of a connection")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 1e6))
      ->group(group);
  command.add_option("--write-timeout", limits.write_seconds, "Without a client taking a byte of its answer")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.1, 1e6))
      ->group(group);
}

void add_service_flags(CLI::App& command, ServeFlags& flags) {
  const std::string group = "Service";
  ServiceOptions& service = flags.service;
  command.add_option("--api-key", service.api_keys, "Key that clients must send; may be repeated (also FOLIO_API_KEY)")
      ->type_name("KEY")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  command.add_option("--api-key-file", flags.api_key_file, "File with such keys, one a line")
      ->type_name("FILE")
      ->group(group);
  command.add_option("--max-requests", service.max_requests, "Answers that run or wait; more are refused with 429")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->group(group);
  command
      .add_option("--request-timeout", service.timeout_seconds,
                  "Longest time of a request; 0: none. A client may ask for less with X-Request-Timeout")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e9))
      ->group(group);
  command.add_option("--drain-timeout", service.drain_seconds, "After SIGTERM: then unfinished requests are aborted")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e9))
      ->group(group);
  command
      .add_option("--sse-keep-alive", service.keep_alive_seconds,
                  "Silence after which a stream gets a comment; 0: none. Some clients do not know comments")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, 1e6))
      ->group(group);
  command.add_option("--api-threads", service.workers, "Threads that read and tokenise requests")
      ->type_name("N")
      ->check(CLI::Range(1, 256))
      ->group(group);
  command.add_option("--stored-responses", service.stored_responses, "Responses kept for previous_response_id")
      ->type_name("N")
      ->group(group);
  command.add_flag("--log-json", service.log_json, "Access lines as JSON")->group(group);
  command.add_flag("--no-access-log", flags.no_access_log, "No line for each request")->group(group);
  command
      .add_option("--request-log", service.request_log, "File that gets every request with its prompt; off by default")
      ->type_name("FILE")
      ->group(group);
}

void add_chat_flags(CLI::App& command, ServeFlags& flags) {
  const std::string group = "Chat";
  command
      .add_option("--served-model-name", flags.names,
                  "Name that clients use; may be repeated (default: the directory's)")
      ->type_name("NAME")
      ->take_all()
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_option("--default-max-tokens", flags.default_max_tokens,
                  "Most tokens of an answer to a chat that names no limit; 0: the rest of the context")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->group(group);
  command.add_flag("--no-thinking", flags.no_thinking, "Chats that do not ask for it do not reason")->group(group);
  command.add_option("--developer-role", flags.developer_role, "What the role developer is")
      ->check(CLI::IsMember({"system", "user"}))
      ->group(group);
  command.add_option("--unclosed-think", flags.unclosed_think, "What reasoning becomes that the end of sentence ends")
      ->check(CLI::IsMember({"reasoning", "content"}))
      ->group(group);
  command
      .add_flag("--parse-special-in-user-text", flags.special_in_user_text,
                "Special tokens that users spell are tokens, as in the reference: for comparisons")
      ->group(group);
  command
      .add_flag("--stream-reasoning-alias", flags.stream_reasoning,
                "Streams have `reasoning` beside `reasoning_content`")
      ->group(group);
  command.add_flag("--schema-in-prompt", flags.schema_in_prompt, "Show the model the schema of a response_format")
      ->group(group);
}

}  // namespace

void add_serve(CLI::App& app) {
  CLI::App* command = app.add_subcommand("serve", "Serve the OpenAI and Anthropic APIs over HTTP");
  command->footer(
      "Chat completions, completions, responses, messages, tokenizer, metrics; a web page at /. See docs/serving.md "
      "and "
      "docs/api.md. SIGTERM finishes what runs, refuses what is new, and ends.\n"
      "Example: folio serve --port 8000 --api-key secret");
  const auto flags = std::make_shared<ServeFlags>();
  add_listen_flags(*command, *flags);
  add_service_flags(*command, *flags);
  add_chat_flags(*command, *flags);
  add_model_flags(*command, flags->model);
  add_engine_flags(*command, flags->engine);
  command->callback([flags] { serve(*flags); });
}

}  // namespace folio
