#include "data/encoded_text.h"

namespace trivet::data {

void append(EncodedText& text, const EncodedText& more) {
  text.facts.add(more.facts);
  const auto first = static_cast<int64_t>(text.ids.size());
  for (const int64_t end : more.document_ends) text.document_ends.push_back(first + end);
  text.ids.insert(text.ids.end(), more.ids.begin(), more.ids.end());
  if (text.ignored.empty() && more.ignored.empty()) return;
  text.ignored.resize(first);
  text.ignored.insert(text.ignored.end(), more.ignored.begin(), more.ignored.end());
  text.ignored.resize(text.ids.size());
}

}  // namespace trivet::data
