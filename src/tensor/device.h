// The memory and the order of work of one device. Ops (ops/ops.h) enqueue on the device's stream; everything that owns
// device memory does it through a Buffer (tensor/buffer.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace folio {

// A point in a device's stream that the host can wait for.
class Event {
 public:
  virtual ~Event() = default;
  // Returns once all work enqueued before the event was recorded is done.
  virtual void wait() = 0;
};

class Device {
 public:
  virtual ~Device() = default;

  // "cpu", "cuda:0"
  virtual std::string name() const = 0;
  // Bytes that can still be allocated.
  virtual int64_t free_memory() const = 0;

  // `bytes` of device memory aligned to 64 bytes, zeroed. Throws Error(kOutOfMemory).
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void free(std::byte* memory, int64_t bytes) = 0;

  // Host <-> device copies and device fills, in stream order. `host` memory must stay valid until an event recorded
  // afterwards has passed.
  virtual void upload(std::byte* device, const std::byte* host, int64_t bytes) = 0;
  virtual void download(std::byte* host, const std::byte* device, int64_t bytes) = 0;
  virtual void fill(std::byte* device, uint8_t value, int64_t bytes) = 0;

  virtual std::unique_ptr<Event> record() = 0;
};

// Host memory; work is done when the call returns. Allocations start on a page; large ones are advised to use huge
// pages.
std::unique_ptr<Device> make_cpu_device();

}  // namespace folio
