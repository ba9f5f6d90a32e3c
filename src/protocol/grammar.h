// Structured output: what the text of an answer must look like, compiled once and enforced token by token
// (protocol spec 3.4, 3.5; docs/structured-output.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/token_policy.h"
#include "tokenizer/tokenizer.h"

namespace folio {

class GrammarVocabulary;
class MaskedAutomaton;

// A function that the answer may call.
struct GrammarTool {
  std::string name;        // as it stands in the markup, qualified when it has a namespace
  std::string parameters;  // JSON Schema of its arguments, as JSON text; "": no parameters
};

// What is wanted. Both a content and tools: the answer is the one or a block of calls. At least one of them is there.
struct GrammarSpec {
  enum class Content : uint8_t {
    kNone,
    kJsonObject,  // any JSON object
    kJsonSchema,  // JSON that is valid under the schema `text`
    kRegex,       // a text that the pattern `text` matches as a whole
    kChoice,      // one of `choices`
  };
  Content content = Content::kNone;
  std::string text = {};
  std::vector<std::string> choices = {};
  std::vector<GrammarTool> tools = {};  // tool_choice "required": all declared tools; a named one: that one alone
  bool parallel_calls = true;           // more than one call is allowed
};

// A compiled grammar. Immutable for its users and safe to share between requests and threads.
class Grammar : public std::enable_shared_from_this<Grammar> {
 public:
  ~Grammar();

  // A policy for one choice of a request, at the beginning of the content: behind </think> where the model reasons. It
  // masks what may not come next; the end of sentence is allowed where the text is complete, and the token after which
  // nothing else could come ends the request (kStop). Independent of all other policies of the grammar.
  std::unique_ptr<TokenPolicy> make_policy() const;

  // Whether `text` is complete under the grammar. Markup tokens of call blocks are read from their spelling.
  bool accepts(std::string_view text) const;

  // Bytes that it holds now, what it keeps for its policies included.
  size_t size_bytes() const;

 private:
  friend class GrammarCompiler;
  struct Parts;
  explicit Grammar(std::unique_ptr<Parts> parts);
  // The automaton that new policies run on; a fresh one when the last has grown too large.
  std::shared_ptr<MaskedAutomaton> automaton() const;
  std::unique_ptr<Parts> parts_;
};

// Compiles grammars for one tokenizer and keeps the last used. Thread-safe; compile() runs in the caller's thread, a
// few milliseconds for usual schemas.
class GrammarCompiler {
 public:
  static constexpr size_t kMaxKeptBytes = size_t{256} << 20;

  // Reads the whole vocabulary (about 0.1 s for the published one). `eos` ends an answer. `capacity`: grammars kept,
  // fewer where they hold more than kMaxKeptBytes together.
  explicit GrammarCompiler(const Tokenizer& tokenizer, int32_t eos, size_t capacity = 64);
  ~GrammarCompiler();

  // Equal specs give the same grammar while it is kept. Throws Error(kInvalidArgument) that names the keyword and its
  // place for a schema that is malformed, uses what is not supported, or that nothing can satisfy; for a pattern that
  // is malformed or not supported; and for what is larger than the limits of docs/structured-output.md.
  std::shared_ptr<const Grammar> compile(const GrammarSpec& spec);

 private:
  struct Cache;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::unique_ptr<Cache> cache_;
};

}  // namespace folio
