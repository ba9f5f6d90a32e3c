// The byte-level alphabet: one printable character for each byte, in which vocabularies spell tokens
// (protocol spec 1.2).
#pragma once

#include <string>
#include <string_view>

namespace folio {

// Sets `bytes` to what `spelling` (UTF-8) stands for; false when a character is not of the alphabet.
bool bytes_of_spelling(std::string_view spelling, std::string& bytes);

// The spelling of `bytes`.
std::string spelling_of_bytes(std::string_view bytes);

}  // namespace folio
