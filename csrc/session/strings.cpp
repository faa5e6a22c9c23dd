#include "session/strings.h"

namespace pasta {

StringTable::Entry StringTable::intern(std::string_view text) {
  std::lock_guard lock(mutex_);
  const auto found = ids_.find(text);
  if (found != ids_.end()) return {found->first, {found->second}};
  if (total_bytes_ + text.size() > kMaxTotalBytes) return {};
  total_bytes_ += text.size();
  const std::string_view kept = texts_.emplace_back(text);
  const auto number = static_cast<uint32_t>(texts_.size());
  ids_.emplace(kept, number);
  return {kept, {number}};
}

StringTable::Added StringTable::take_added() {
  std::lock_guard lock(mutex_);
  Added added{static_cast<uint32_t>(taken_ + 1), {}};
  added.texts.reserve(texts_.size() - taken_);
  for (; taken_ < texts_.size(); ++taken_) added.texts.push_back(texts_[taken_]);
  return added;
}

}  // namespace pasta
