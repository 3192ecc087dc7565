#pragma once

#include <string>
#include <string_view>

namespace capstan {

// Whether a variable or key of this name holds a secret: a token, key, password or the like.
bool names_secret(std::string_view name);

// A text to show to strangers. Masked with "***": the password of every URL, what follows a name
// with a token, key or password in it ("access_token: x", "--access_token x", "API_KEY=x",
// "Authorization: Bearer x"), and words that begin like the tokens of known services (hf_…, ghp_…).
// `home` becomes "~". Secrets in other forms stay.
std::string masked(std::string_view text, std::string_view home);

}  // namespace capstan
