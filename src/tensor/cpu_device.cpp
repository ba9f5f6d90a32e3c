#include <sys/mman.h>

#include <cstring>

#include "base/error.h"
#include "base/memory.h"
#include "tensor/device.h"

namespace folio {
namespace {

class PassedEvent final : public Event {
  void wait() override {}
};

class CpuDevice final : public Device {
 public:
  std::string name() const override { return "cpu"; }
  int64_t free_memory() const override { return available_memory(); }

  std::byte* allocate(int64_t bytes) override {
    if (bytes == 0) return nullptr;
    // Anonymous mappings are zero and cost nothing until touched.
    void* memory =
        ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail(ErrorCode::kOutOfMemory, "cannot allocate ", bytes, " bytes of memory");
    if (bytes >= kHugePage) ::madvise(memory, static_cast<size_t>(bytes), MADV_HUGEPAGE);
    return static_cast<std::byte*>(memory);
  }
  void free(std::byte* memory, int64_t bytes) override {
    if (memory != nullptr) ::munmap(memory, static_cast<size_t>(bytes));
  }

  void upload(std::byte* device, const std::byte* host, int64_t bytes) override {
    std::memcpy(device, host, static_cast<size_t>(bytes));
  }
  void download(std::byte* host, const std::byte* device, int64_t bytes) override {
    std::memcpy(host, device, static_cast<size_t>(bytes));
  }
  void fill(std::byte* device, uint8_t value, int64_t bytes) override {
    std::memset(device, value, static_cast<size_t>(bytes));
  }
  std::unique_ptr<Event> record() override { return std::make_unique<PassedEvent>(); }

 private:
  static constexpr int64_t kHugePage = 2 << 20;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() { return std::make_unique<CpuDevice>(); }

}  // namespace folio
