#include "backends/sanitizer/tensor_map_layout.h"

namespace pasta::sanitizer {
namespace {

constexpr uint16_t kMapBits = 1024;
constexpr uint16_t kNowhere = kMapBits;  // a bit that this encoder never set: it is 0

bool bit(const MapWords& words, uint32_t place) { return (words[place / 64] >> (place % 64) & 1) != 0; }

}  // namespace

bool MapLayout::learn_number(uint32_t number, const std::vector<Sample>& samples, const std::vector<Column>& columns) {
  Column present;
  for (size_t i = 0; i < samples.size(); ++i) present[i] = samples[i].map.present[number];
  if (present.none()) return true;
  const NumberBits bits = number_bits(number);
  for (uint32_t b = 0; b < bits.most; ++b) {
    Column column;
    for (size_t i = 0; i < samples.size(); ++i) column[i] = (samples[i].map.numbers[number] >> b & 1) != 0;
    column &= present;
    if (column.none()) {
      places_[number].push_back(kNowhere);
      continue;
    }
    if (column == present) return false;  // many bits are always 1
    uint16_t place = 0;
    while (place < kMapBits && (columns[place] & present) != column) ++place;
    if (place == kMapBits) return false;
    places_[number].push_back(place);
  }
  while (places_[number].back() == kNowhere) {
    places_[number].pop_back();
    if (places_[number].size() < bits.least) return false;
  }
  for (const uint16_t place : places_[number]) {
    if (place == kNowhere) return false;
  }
  return true;
}

// Its bits are those that nothing else changes.
bool MapLayout::learn_choice(uint32_t choice, const std::vector<Sample>& samples) {
  std::map<uint32_t, const Sample*> firsts;
  MapWords mask{};
  for (const Sample& sample : samples) firsts.try_emplace(sample.map.choices[choice], &sample);
  for (const auto& [value, first] : firsts) {
    for (size_t w = 0; w < mask.size(); ++w) mask[w] |= first->words[w] ^ samples[0].words[w];
  }
  for (const Sample& sample : samples) {
    const MapWords& first = firsts[sample.map.choices[choice]]->words;
    for (size_t w = 0; w < mask.size(); ++w) mask[w] &= ~(sample.words[w] ^ first[w]);
  }
  masks_[choice] = mask;
  for (const auto& [value, first] : firsts) {
    if (!patterns_[choice].try_emplace(pattern(choice, first->words), value).second) return false;
  }
  return true;
}

uint64_t MapLayout::pattern(uint32_t choice, const MapWords& words) const {
  uint64_t result = 0;
  for (size_t w = 0; w < words.size(); ++w) {
    for (uint64_t rest = masks_[choice][w]; rest != 0; rest &= rest - 1) {
      result = result << 1 | (words[w] >> __builtin_ctzll(rest) & 1);
    }
  }
  return result;
}

std::optional<MapLayout> MapLayout::learn(const Draw& draw, std::string& why) {
  std::mt19937_64 random(1);
  std::vector<Sample> samples;
  for (int call = 0; call < kMostCalls && samples.size() < kSamples + kChecked; ++call) {
    Sample sample;
    if (draw(random, sample.map, sample.words)) samples.push_back(sample);
  }
  if (samples.size() < kSamples + kChecked) {
    why = "the driver encoded only " + std::to_string(samples.size()) + " of the maps that it was tried with";
    return std::nullopt;
  }
  const std::vector<Sample> checked(samples.begin() + kSamples, samples.end());
  samples.resize(kSamples);
  std::vector<Column> columns(kMapBits);
  for (size_t i = 0; i < samples.size(); ++i) {
    for (uint16_t place = 0; place < kMapBits; ++place) columns[place][i] = bit(samples[i].words, place);
  }
  MapLayout layout;
  for (uint32_t choice = 0; choice < kChoices; ++choice) {
    if (layout.learn_choice(choice, samples)) continue;
    why = "no bits tell choice " + std::to_string(choice);
    return std::nullopt;
  }
  for (uint32_t number = 0; number < kNumbers; ++number) {
    if (layout.learn_number(number, samples, columns)) continue;
    why = "no bits hold number " + std::to_string(number);
    return std::nullopt;
  }
  for (const Sample& sample : checked) {
    const std::optional<DrawnMap> read = layout.read(sample.words);
    bool same = read && read->choices == sample.map.choices;
    for (uint32_t number = 0; number < kNumbers && same; ++number) {
      same = !sample.map.present[number] || read->numbers[number] == sample.map.numbers[number];
    }
    if (same) continue;
    why = "a map was not read back as it was encoded";
    return std::nullopt;
  }
  return layout;
}

std::optional<DrawnMap> MapLayout::read(const MapWords& words) const {
  DrawnMap map;
  for (uint32_t choice = 0; choice < kChoices; ++choice) {
    const auto found = patterns_[choice].find(pattern(choice, words));
    if (found == patterns_[choice].end()) return std::nullopt;
    map.choices[choice] = found->second;
  }
  for (uint32_t number = 0; number < kNumbers; ++number) {
    for (size_t b = 0; b < places_[number].size(); ++b) {
      map.numbers[number] |= uint64_t{bit(words, places_[number][b])} << b;
    }
  }
  return map;
}

}  // namespace pasta::sanitizer
