#include "engine/calibration_profile.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine_config.h"

namespace folio {
namespace {

using Json = nlohmann::ordered_json;

const ProfileIdentity kIdentity = {{"config", "c0ffee"},          {"tensors", "beef"}, {"model_type", "deepseek_v41"},
                                   {"tensor_parallel_size", "1"}, {"processor", "Z"},  {"isa", "avx2"},
                                   {"kv_cache_dtype", "fp4"},     {"threads", "2"},    {"folio", "0.1.0"},
                                   {"index_cache_dtype", "fp4"}};

CalibrationProfile sound() {
  CalibrationProfile profile{
      .identity = kIdentity, .draft_width = 5, .max_num_seqs = 4, .costs = {}, .temperatures = {}};
  for (int row = 0; row <= 24; ++row) profile.costs.steps_per_second.push_back(100.0 / (4 + row));
  profile.costs.draft_seconds.resize(5);
  for (int width = 1; width <= 5; ++width) {
    for (int requests = 0; requests <= 4; ++requests) {
      profile.costs.draft_seconds[static_cast<size_t>(width - 1)].push_back(0.001 * (width + requests));
    }
  }
  profile.temperatures = {0.8, 0.9, 1.0, 1.1, 1.2};
  return profile;
}

Json document() { return Json::parse(profile_json(sound(), R"({"blocks": 10})")); }

void expect_refused(const Json& json, const std::vector<std::string>& says) {
  try {
    parse_profile(json.dump(), "p.json");
    FAIL() << "accepted: " << json.dump();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    const std::string message = error.what();
    EXPECT_TRUE(message.starts_with("p.json: ")) << message;
    for (const std::string& part : says) EXPECT_NE(message.find(part), std::string::npos) << part << " in " << message;
  }
}

void expect_field_refused(const char* field, const Json& value, const std::string& says) {
  Json json = document();
  json[field] = value;
  expect_refused(json, {field, says});
}

TEST(CalibrationProfile, ComesBackAsItWasWritten) {
  const CalibrationProfile profile = parse_profile(document().dump(), "p.json");
  const CalibrationProfile written = sound();
  EXPECT_EQ(profile.identity, written.identity);
  EXPECT_EQ(profile.draft_width, 5);
  EXPECT_EQ(profile.max_num_seqs, 4);
  EXPECT_EQ(profile.costs.steps_per_second, written.costs.steps_per_second);
  EXPECT_EQ(profile.costs.draft_seconds, written.costs.draft_seconds);
  EXPECT_EQ(profile.temperatures, written.temperatures);
  EXPECT_EQ(document()["evidence"]["blocks"], 10);
}

TEST(CalibrationProfile, RefusesWhatIsNoProfile) {
  EXPECT_THROW(parse_profile("", "p.json"), Error);
  EXPECT_THROW(parse_profile("{\"version\": 1", "p.json"), Error);
  EXPECT_THROW(parse_profile("[1]", "p.json"), Error);
  EXPECT_THROW(parse_profile(std::string(100000, '['), "p.json"), Error);
  EXPECT_THROW(read_profile("/nonexistent/p.json"), Error);
}

TEST(CalibrationProfile, RefusesOtherVersions) {
  expect_field_refused("version", 2, "this build reads 1");
  expect_field_refused("version", "1", "this build reads 1");
  Json json = document();
  json.erase("version");
  expect_refused(json, {"version is missing"});
}

TEST(CalibrationProfile, RefusesMissingAndUnknownFields) {
  for (const char* field :
       {"identity", "draft_width", "max_num_seqs", "sps_table", "draft_seconds", "sts_temperatures"}) {
    Json json = document();
    json.erase(field);
    expect_refused(json, {std::string("`") + field + "` is missing"});
  }
  expect_field_refused("temperature", 1, "there is no field");
  Json json = document();
  json.erase("evidence");  // for people alone
  EXPECT_NO_THROW(parse_profile(json.dump(), "p.json"));
}

TEST(CalibrationProfile, RefusesValuesOfTheWrongKind) {
  expect_field_refused("draft_width", 0, "from 1 to");
  expect_field_refused("draft_width", 5.5, "from 1 to");
  expect_field_refused("draft_width", -1, "from 1 to");
  expect_field_refused("draft_width", 1e300, "from 1 to");
  expect_field_refused("max_num_seqs", "4", "from 1 to");
  expect_field_refused("max_num_seqs", 1 << 20, "from 1 to");
  expect_field_refused("sps_table", {{"a", 1}}, "array of numbers");
  expect_field_refused("sts_temperatures", Json::array({1, 1, 1, 1, "1"}), "array of numbers");
  expect_field_refused("identity", Json::array(), "object of strings");
  expect_field_refused("identity", {{"threads", 2}}, "object of strings");
}

TEST(CalibrationProfile, RefusesTemperaturesThatCannotBe) {
  expect_field_refused("sts_temperatures", {1, 1, 0, 1, 1}, "sts_temperatures[2] is 0 and must be positive");
  expect_field_refused("sts_temperatures", {1, 1, 1, 1, -2}, "sts_temperatures[4] is -2");
  expect_field_refused("sts_temperatures", {1, 1, 1, 1}, "has 4 entries and needs 5");
  CalibrationProfile profile = sound();
  profile.temperatures[1] = INFINITY;
  EXPECT_NE(profile_refusal(profile)->find("sts_temperatures[1] is inf"), std::string::npos);
  profile.temperatures[1] = NAN;
  EXPECT_TRUE(profile_refusal(profile));
}

TEST(CalibrationProfile, RefusesTablesThatCannotBe) {
  Json json = document();
  json["sps_table"].erase(24);
  expect_refused(json, {"sps_table has 24 entries and needs 25"});
  json = document();
  json["sps_table"][7] = json["sps_table"][6].get<double>() * 1.001;
  expect_refused(json, {"sps_table[7]", "must not rise"});
  json["sps_table"][7] = 0;
  expect_refused(json, {"sps_table[7] is 0 and must be positive"});
  json = document();
  json["draft_seconds"][1][2] = 1e-6;
  expect_refused(json, {"draft_seconds[1][2]", "must not fall"});
  json["draft_seconds"][4] = {0.1};
  expect_refused(json, {"draft_seconds[4] has 1 entries and needs 5"});
  json["draft_seconds"].erase(4);
  expect_refused(json, {"draft_seconds has 4 tables and needs 5"});
  json["draft_seconds"] = {0.1, 0.1, 0.1, 0.1, 0.1};
  expect_refused(
      json, {"draft_seconds must be an array of arrays of numbers, one for each width: run folio calibrate again"});
  json = document();
  for (Json& entry : json["sps_table"]) entry = 7.5;  // flat is allowed
  EXPECT_NO_THROW(parse_profile(json.dump(), "p.json"));
}

TEST(CalibrationProfile, NamesEveryReasonAtOnce) {
  Json json = document();
  json["sts_temperatures"] = {1, 1, 1, 1, -1};
  json["sps_table"][0] = -1;
  json["draft_seconds"].erase(0);
  expect_refused(json, {"sts_temperatures[4]", "sps_table[0]", "draft_seconds has 4 tables"});
  json["draft_width"] = 0;
  json["colour"] = "red";
  json["draft_seconds"] = 1;
  expect_refused(json, {"draft_width is 0", "`colour`", "draft_seconds must be"});
}

TEST(CalibrationProfile, HoldsForItsOwnIdentityAlone) {
  EXPECT_FALSE(identity_refusal(sound(), kIdentity, "p.json"));
  for (const auto& [name, value] : kIdentity) {
    ProfileIdentity other = kIdentity;
    other[name] = "another";
    const auto refusal = identity_refusal(sound(), other, "p.json");
    ASSERT_TRUE(refusal) << name;
    EXPECT_NE(refusal->find("made for " + name + " " + value + ", and here it is another"), std::string::npos)
        << *refusal;
    EXPECT_NE(refusal->find("p.json"), std::string::npos);
    EXPECT_NE(refusal->find("folio calibrate"), std::string::npos);

    CalibrationProfile less = sound();
    less.identity.erase(name);
    EXPECT_NE(identity_refusal(less, kIdentity, "p.json")->find("its identity has no " + name), std::string::npos);
  }
  CalibrationProfile more = sound();
  more.identity["gpu"] = "H200";
  EXPECT_NE(identity_refusal(more, kIdentity, "p.json")->find("gpu"), std::string::npos);
}

TEST(CalibrationProfile, CoversItsOwnWidthAndItsRequests) {
  EXPECT_FALSE(coverage_refusal(sound(), 5, 4));
  EXPECT_FALSE(coverage_refusal(sound(), 5, 1));
  EXPECT_NE(coverage_refusal(sound(), 3, 4)->find("for 5 drafted tokens and --num-speculative-tokens is 3"),
            std::string::npos);
  EXPECT_NE(coverage_refusal(sound(), 5, 5)->find("covers 4 requests at once and --max-num-seqs is 5"),
            std::string::npos);
  const auto refusal = coverage_refusal(
      sound(), 3, 5, {.num_speculative_tokens = "the model's block", .max_num_seqs = "the most of --requests"});
  EXPECT_NE(refusal->find("and the model's block is 3"), std::string::npos);
  EXPECT_NE(refusal->find("and the most of --requests is 5"), std::string::npos);
}

}  // namespace
}  // namespace folio
