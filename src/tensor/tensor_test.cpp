#include <gtest/gtest.h>

#include "tensor/arena.h"
#include "tensor/buffer.h"
#include "tensor/view.h"

namespace folio {
namespace {

TEST(Shape, ElementsAndText) {
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.elements(), 24);
  EXPECT_EQ(shape.to_string(), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.elements(), 1);
  EXPECT_NE(shape, (Shape{2, 3}));
  const TensorView view{.data = nullptr, .dtype = DType::kBF16, .shape = shape};
  EXPECT_EQ(view.bytes(), 48);
}

TEST(DType, NamesRoundTrip) {
  for (const DType dtype :
       {DType::kF32, DType::kBF16, DType::kF8E4M3, DType::kF8E8M0, DType::kI8, DType::kU8, DType::kI32, DType::kI64}) {
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_FALSE(dtype_from_name("F64").has_value());
}

TEST(CpuDevice, CopiesAndFills) {
  const auto device = make_cpu_device();
  Buffer buffer(*device, 100);
  EXPECT_EQ(buffer.as<uint8_t>()[99], 0);
  const std::byte host[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  device->upload(buffer.data() + 8, host, 4);
  std::byte back[4];
  device->download(back, buffer.data() + 8, 4);
  device->record()->wait();
  EXPECT_EQ(back[3], std::byte{4});
  device->fill(buffer.data(), 0xff, 100);
  EXPECT_EQ(buffer.as<uint8_t>()[50], 0xff);
  EXPECT_GT(device->free_memory(), 0);
}

TEST(Buffer, MovesOwnership) {
  const auto device = make_cpu_device();
  Buffer first(*device, 64);
  std::byte* data = first.data();
  Buffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  second = Buffer();
  EXPECT_EQ(second.data(), nullptr);
}

TEST(Arena, MeasuresThenPlaces) {
  const auto lay_out = [](Arena& arena) {
    arena.take<uint8_t>(3);
    return arena.take<double>(5);
  };
  Arena measure;
  EXPECT_EQ(lay_out(measure), nullptr);
  EXPECT_EQ(measure.used(), 64 + 64);
  const auto device = make_cpu_device();
  Buffer memory(*device, measure.used());
  Arena arena(memory);
  EXPECT_EQ(reinterpret_cast<std::byte*>(lay_out(arena)), memory.data() + 64);
  EXPECT_DEATH(arena.take<uint8_t>(1), "of 128 bytes");
}

}  // namespace
}  // namespace folio
