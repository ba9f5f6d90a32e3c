#include "server/web/web_page.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "base/error.h"

namespace folio {
namespace {

const std::filesystem::path kSources = std::filesystem::path(FOLIO_SOURCE_DIR) / "src/server/web";

std::string contents(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(WebPage, HoldsTheBytesOfEverySource) {
  std::set<std::string> embedded;
  for (const WebFile& file : web_files()) {
    const std::string name = file.path == "/" ? "index.html" : std::string(file.path.substr(1));
    EXPECT_EQ(file.body, contents(kSources / name)) << name;
    embedded.insert(name);
  }
  for (const auto& entry : std::filesystem::directory_iterator(kSources)) {
    const std::string extension = entry.path().extension();
    if (extension == ".h" || extension == ".cpp" || extension == ".cmake") continue;
    EXPECT_TRUE(embedded.contains(entry.path().filename())) << entry.path();
  }
}

TEST(WebPage, FindsFilesByPath) {
  ASSERT_NE(find_web_file("/"), nullptr);
  EXPECT_EQ(find_web_file("/")->content_type, "text/html; charset=utf-8");
  ASSERT_NE(find_web_file("/app.js"), nullptr);
  EXPECT_EQ(find_web_file("/app.js")->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(find_web_file("/index.html"), nullptr);
  EXPECT_EQ(find_web_file(""), nullptr);
  EXPECT_EQ(find_web_file("/../web_page.h"), nullptr);
}

TEST(WebPage, EtagsAreQuotedAndOfTheContent) {
  std::set<std::string_view> etags;
  for (const WebFile& file : web_files()) {
    EXPECT_TRUE(std::regex_match(std::string(file.etag), std::regex("\"[0-9a-f]{16}\""))) << file.path;
    etags.insert(file.etag);
  }
  EXPECT_EQ(etags.size(), web_files().size());
}

// What a script or a style sheet names must be another file of the page; markup has neither scripts nor styles inline,
// which the policy would refuse.
TEST(WebPage, RefersToNothingElsewhere) {
  const std::regex reference(R"re((?:\b(?:src|href)="|from '\./)([^"'#]+)["'])re");
  for (const WebFile& file : web_files()) {
    const std::string body(file.body);
    for (std::sregex_iterator match(body.begin(), body.end(), reference), end; match != end; ++match) {
      EXPECT_NE(find_web_file(concat("/", (*match)[1].str())), nullptr) << file.path << ": " << (*match)[0];
    }
    for (const char* refused : {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "@import",
                                "<style", " style=", " onclick="}) {
      EXPECT_EQ(body.find(refused), std::string::npos) << file.path << ": " << refused;
    }
  }
}

}  // namespace
}  // namespace folio
