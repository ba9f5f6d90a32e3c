// What the server needs of an engine, so that tests and load measurements can put another in its place.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "protocol/messages.h"
#include "protocol/thinking.h"
#include "tokenizer/tokenizer.h"

namespace folio {

class Backend {
 public:
  virtual ~Backend() = default;
  // As those of Engine.
  virtual RequestId submit(std::shared_ptr<const Request> request) = 0;
  virtual void cancel(RequestId id) = 0;
  virtual EngineStats stats() const = 0;
};

class EngineBackend final : public Backend {
 public:
  explicit EngineBackend(Engine& engine) : engine_(engine) {}
  RequestId submit(std::shared_ptr<const Request> request) override { return engine_.submit(std::move(request)); }
  void cancel(RequestId id) override { engine_.cancel(id); }
  EngineStats stats() const override { return engine_.stats(); }

 private:
  Engine& engine_;
};

// The model as clients see it, and how its chats are read and written.
struct ServedModel {
  std::vector<std::string> names;  // at least one; replies repeat the one that the client used
  std::string root;                // where it lies, for people
  const Tokenizer* tokenizer = nullptr;
  std::string tokenizer_config;  // text of its tokenizer_config.json, "" if there is none
  int64_t vocab_size = 0;
  int64_t max_model_len = 0;  // tokens of prompt and answer
  int32_t bos_token_id = 0, eos_token_id = 1, pad_token_id = 2;
  int32_t block_size = 0;  // tokens of a PAGE

  int64_t default_max_tokens = 0;  // of chats that name no limit; 0: the rest of the context
  Thinking thinking;               // of chats that do not speak of it
  DeveloperRole developer_role = DeveloperRole::kSystem;
  bool special_in_user_text = false;    // special tokens that a user spells are tokens
  bool unclosed_think_content = false;  // reasoning that the end of sentence ends becomes content
  bool reasoning_alias = false;         // streams have `reasoning` beside `reasoning_content`
  bool schema_in_prompt = false;        // a response_format is shown to the model, too
};

}  // namespace folio
