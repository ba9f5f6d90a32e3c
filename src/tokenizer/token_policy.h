// How rules about text act on the tokens of a running request: stop strings, thinking state, grammars. The engine calls
// a policy on committed tokens; protocol/ implements policies.
#pragma once

#include <cstdint>
#include <span>

namespace folio {

enum class PolicyVerdict : uint8_t { kContinue, kStop };

// One request's policy; used by the engine's thread alone. A request with a policy never has two steps in flight.
class TokenPolicy {
 public:
  virtual ~TokenPolicy() = default;

  // Clears the bits of token ids that may not come next; bit i of the row is id i, all set before the call. False if
  // nothing was cleared.
  virtual bool mask(std::span<uint64_t> bits) = 0;
  // False: mask() never clears anything, so that nobody need ask what it would say behind tokens that may not come.
  virtual bool masks() const { return true; }
  // Takes the next token. kStop ends the request with this token as its last.
  virtual PolicyVerdict accept(int32_t id) = 0;
  // Forgets the last `count` accepted tokens.
  virtual void rollback(int32_t count) = 0;
};

}  // namespace folio
