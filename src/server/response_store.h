// The last responses, for `previous_response_id` and GET /v1/responses/{id} (protocol spec 5.9). Safe from any thread.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "protocol/messages.h"

namespace folio {

// The conversation up to and with a response, and the response as it was sent.
struct StoredResponse {
  std::vector<Message> messages;  // without instructions, which are not inherited
  std::string body;               // JSON
  std::vector<Json> items = {};   // of its output, each with an "id"
};

class ResponseStore {
 public:
  // Keeps the last `responses` of at most `bytes` together.
  ResponseStore(size_t responses, size_t bytes) : max_responses_(responses), max_bytes_(bytes) {}

  void put(const std::string& id, StoredResponse response);
  // Null when it is unknown or has been dropped.
  std::shared_ptr<const StoredResponse> find(const std::string& id) const;
  // The item of a kept response with the id `id`.
  std::optional<Json> find_item(const std::string& id) const;
  // False when there was none.
  bool erase(const std::string& id);

 private:
  struct Entry {
    std::shared_ptr<const StoredResponse> response;
    size_t bytes = 0;
  };
  using Entries = std::unordered_map<std::string, Entry>;
  void drop(Entries::iterator entry);
  void drop_oldest();

  const size_t max_responses_, max_bytes_;
  mutable std::mutex mutex_;
  Entries entries_;
  std::unordered_map<std::string, const Json*> items_;  // of all entries, by id
  std::deque<std::string> order_;                       // oldest first; may name erased ones
  size_t bytes_ = 0;
};

}  // namespace folio
