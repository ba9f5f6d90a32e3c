// The life of one request for tokens: read, submitted, streamed, finished, whatever happens on the way. On the I/O
// thread alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/answer.h"
#include "server/backend.h"
#include "server/log_writer.h"
#include "server/metrics.h"
#include "server/reply_channel.h"

namespace folio {

// What sessions need of their server.
struct SessionHost {
  Backend& backend;
  Mailbox& mailbox;
  ServerMetrics& metrics;
  int64_t max_requests = 4096;    // choices that are accepted and not finished; more are refused with 429
  double keep_alive_seconds = 0;  // of silence, after which a stream gets a comment; 0: none
  double timeout_seconds = 0;     // of a request; 0: none
  int64_t choices = 0;            // accepted and not finished
  bool failed = false;            // the engine has
};

class Session final : public Exchange {
 public:
  Session(uint64_t number, SessionHost& host, ReplyChannel channel, RequestRecord record);

  // The request has been read, or could not be.
  void start(Generation generation);
  void refuse(const ApiError& error);

  void on_event(EngineEvent& event);
  // Sends what the events since the last call have made.
  void flush();
  void on_tick(double now);
  void on_disconnect() override;
  // Ends it as soon as the engine can: the client is told that the server is going away.
  void abort();

  uint64_t number() const { return number_; }
  // Answered or given up, and the engine has nothing of it any more.
  bool done() const { return done_; }
  const RequestRecord& record() const { return record_; }
  void set_timeout(double seconds);

 private:
  struct ChoiceTimes {
    double first = 0, last = 0;
    int64_t tokens = 0;
    bool finished = false;
  };

  bool submit();
  void cancel_engine();
  void give_up(const ApiError& error);
  void begin();
  void take_token(const EngineEvent& event);
  void take_finish(const EngineEvent& event);
  void count_finish(const FinishNews& news, const ChoiceTimes& times, bool first_choice);
  void complete();
  int32_t choice_of(const EngineEvent& event) const { return event.prompt * per_prompt_ + event.choice; }

  const uint64_t number_;
  SessionHost& host_;
  ReplyChannel channel_;
  RequestRecord record_;
  Generation generation_;
  int32_t per_prompt_ = 1;
  std::vector<RequestId> submitted_;
  std::vector<ChoiceTimes> choices_;
  int64_t unfinished_ = 0;           // choices that the engine has
  std::unique_ptr<ApiError> error_;  // why the answer is none
  std::string out_;
  double deadline_ = 0;  // 0: none
  double last_write_ = 0;
  bool began_ = false;   // the stream's status is sent
  bool opened_ = false;  // and its first events
  bool gone_ = false;    // the client
  bool done_ = false;
};

}  // namespace folio
