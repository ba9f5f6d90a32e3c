// libFuzzer target: the text of an answer, cut at random. The first two bytes choose the start and the cuts.
#include "protocol/stream_parser.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "base/rng.h"
#include "tokenizer/utf8.h"

namespace {

using namespace folio;

void check(bool condition) {
  if (!condition) std::abort();
}

std::shared_ptr<const std::vector<Tool>> tools() {
  static const auto tools = std::make_shared<const std::vector<Tool>>(parse_tools(Json::parse(
      R"([{"function":{"name":"f","parameters":{"properties":{"s":{"type":"string"},"i":{"type":"integer"}}}}}])")));
  return tools;
}

// What the text gives when it is pushed in parts of at most `most` bytes.
ParsedAnswer parse(const ParserOptions& options, std::string_view text, AnswerEnd end, size_t most) {
  StreamParser parser(options);
  ParsedAnswer answer;
  uint64_t counter = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = 1 + random_bits(most, 0, counter++) % most;
    std::vector<Delta> deltas;
    parser.push(text.substr(at, length), deltas);
    answer.add(deltas);
    at += length;
  }
  std::vector<Delta> deltas;
  parser.finish(end, deltas);
  answer.add(deltas);
  return answer;
}

bool has_think_tag(std::string_view text) {
  return text.find("<think>") != std::string_view::npos || text.find("</think>") != std::string_view::npos;
}

// The text without its tags, around which new ones may stand: </thi<think>nk>.
std::string without_think_tags(std::string_view text) {
  std::string rest;
  for (size_t at = 0; at < text.size();) {
    const std::string_view tail = text.substr(at);
    const size_t tag = tail.starts_with("<think>") ? 7 : tail.starts_with("</think>") ? 8 : 0;
    if (tag == 0) rest += tail[0];
    at += std::max<size_t>(tag, 1);
  }
  return rest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  ParserOptions options{.start = (data[0] & 1) != 0 ? AnswerStart::kReasoning : AnswerStart::kContent,
                        .calls = (data[0] & 2) != 0};
  if ((data[0] & 4) != 0) options.tools = tools();
  if ((data[0] & 8) != 0) options.stops = {"ab", "b\n"};
  const AnswerEnd end = (data[0] & 16) != 0 ? AnswerEnd::kStop : AnswerEnd::kLength;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);

  const ParsedAnswer whole = parse(options, text, end, text.size() + 1);
  const ParsedAnswer cut = parse(options, text, end, 1 + data[1] % 8);
  check(whole.reasoning == cut.reasoning && whole.content == cut.content && whole.calls.size() == cut.calls.size());
  for (size_t i = 0; i < whole.calls.size(); ++i) {
    const ParsedAnswer::Call& call = whole.calls[i];
    check(call.name == cut.calls[i].name && call.arguments == cut.calls[i].arguments &&
          call.complete == cut.calls[i].complete);
    if (!call.complete) continue;
    try {
      check(Json::parse(call.arguments).object() != nullptr);
    } catch (const Error&) {
      check(find_invalid_utf8(call.arguments) != call.arguments.size());  // what is no text cannot become JSON
    }
  }
  for (const std::string& field : {whole.reasoning, whole.content}) {
    check(!has_think_tag(field) || has_think_tag(without_think_tags(text)));
  }
  return 0;
}
