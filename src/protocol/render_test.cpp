#include "protocol/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "protocol/field_error.h"
#include "protocol/test_util.h"

namespace folio {
namespace {

// The case of a vector file: messages with the options of the reference.
struct Case {
  std::vector<Message> messages;
  RenderOptions options{.end = PromptEnd::kReference};
};

Case read_case(const Json& json, DeveloperRole developer = DeveloperRole::kSystem) {
  Case result;
  const bool is_list = json.array() != nullptr;
  result.messages = parse_messages(is_list ? json : *json.find("messages"), developer);
  const Json* mode = json.find("thinking_mode");
  result.options.thinking.on = mode != nullptr && *mode->string() == "thinking";
  if (const Json* tools = json.find("tools")) attach_tools(result.messages, parse_tools(*tools));
  const Json* options = json.find("options");
  if (options == nullptr) return result;
  if (const Json* effort = options->find("reasoning_effort")) {
    result.options.thinking.effort = encoder_effort(*effort, "reasoning_effort");
  }
  if (const Json* drop = options->find("drop_thinking")) result.options.thinking.drop_reasoning = *drop->boolean();
  return result;
}

TEST(Render, ReleaseVectors) {
  const auto text = read_text(kVectors + "v41/encode_vectors_release.json");
  ASSERT_TRUE(text);
  const Json vectors = Json::parse(*text);
  int compared = 0, refused = 0;
  for (const Json& vector : *vectors.array()) {
    const std::string name = text_of(vector, "name");
    SCOPED_TRACE(name);
    if (const Json* prompt = vector.find("prompt")) {
      const Case c = read_case(vector);
      const Prompt rendered = render(c.messages, c.options);
      EXPECT_EQ(rendered.text, *prompt->string());
      EXPECT_EQ(std::ssize(rendered.images), *vector.find("images")->integer());
      ++compared;
    } else if (name == "image token in text") {
      const Case c = read_case(vector);  // a client's text is never a token, so there is nothing to refuse
      EXPECT_TRUE(render(c.messages, c.options).images.empty());
    } else {
      EXPECT_THROW(read_case(vector), FieldError);
      ++refused;
    }
  }
  EXPECT_EQ(compared, 52);
  EXPECT_EQ(refused, 5);
}

struct Fixture {
  const char *input, *output;
  bool thinking;
  DeveloperRole developer = DeveloperRole::kSystem;
  int effort = 75;
};

class RenderFixtures : public testing::TestWithParam<Fixture> {};

TEST_P(RenderFixtures, Equal) {
  const Fixture& fixture = GetParam();
  const auto input = read_text(kOutsideVectors + fixture.input);
  const auto output = read_text(kOutsideVectors + fixture.output);
  if (!input || !output) GTEST_SKIP() << "the fixtures beside the repository are not here: " << fixture.input;
  Case c = read_case(Json::parse(*input), fixture.developer);
  c.options.thinking.on = fixture.thinking;
  c.options.thinking.effort = fixture.effort;
  EXPECT_EQ(render(c.messages, c.options).text, *output);
}

INSTANTIATE_TEST_SUITE_P(
    All, RenderFixtures,
    testing::Values(Fixture{"v41/test_input_1.json", "v41/prerelease_output_1.txt", true, DeveloperRole::kSystem, 50},
                    Fixture{"v41/test_input_2.json", "v41/prerelease_output_2.txt", false},
                    Fixture{"v41/test_input_3.json", "v41/prerelease_output_3.txt", false, DeveloperRole::kUser},
                    Fixture{"v4/test_input_1.json", "v41/vllm_output_for_v4_input_1.txt", true},
                    Fixture{"v4/test_input_1.reasoning_content.json", "v41/vllm_output_for_v4_input_1.txt", true}));

}  // namespace
}  // namespace folio
