#include "server/response_store.h"

namespace folio {
namespace {

size_t size_of(const StoredResponse& response) {
  size_t bytes = 2 * response.body.size();  // also as items
  for (const Message& message : response.messages) {
    bytes += sizeof(Message) + message.reasoning.size();
    for (const ContentPart& part : message.content) bytes += sizeof part + part.text.size();
    for (const ToolCall& call : message.tool_calls) bytes += json_text(call.arguments).size();
  }
  return bytes;
}

const std::string* id_of(const Json& item) {
  const Json* id = item.find("id");
  return id == nullptr ? nullptr : id->string();
}

}  // namespace

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const size_t bytes = size_of(response);
  auto kept = std::make_shared<const StoredResponse>(std::move(response));
  const std::lock_guard lock(mutex_);
  if (const auto old = entries_.find(id); old != entries_.end()) drop(old);
  if (bytes > max_bytes_) return;
  while (!order_.empty() && (entries_.size() >= max_responses_ || bytes_ + bytes > max_bytes_)) drop_oldest();
  for (const Json& item : kept->items) {
    if (const std::string* own = id_of(item)) items_[*own] = &item;
  }
  entries_[id] = {std::move(kept), bytes};
  order_.push_back(id);
  bytes_ += bytes;
}

void ResponseStore::drop(Entries::iterator entry) {
  for (const Json& item : entry->second.response->items) {
    const std::string* own = id_of(item);
    const auto place = own == nullptr ? items_.end() : items_.find(*own);
    if (place != items_.end() && place->second == &item) items_.erase(place);
  }
  bytes_ -= entry->second.bytes;
  entries_.erase(entry);
}

void ResponseStore::drop_oldest() {
  const auto entry = entries_.find(order_.front());
  if (entry != entries_.end()) drop(entry);
  order_.pop_front();
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(id);
  return entry == entries_.end() ? nullptr : entry->second.response;
}

std::optional<Json> ResponseStore::find_item(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto item = items_.find(id);
  return item == items_.end() ? std::nullopt : std::optional<Json>(*item->second);
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(id);
  if (entry == entries_.end()) return false;
  drop(entry);
  return true;
}

}  // namespace folio
