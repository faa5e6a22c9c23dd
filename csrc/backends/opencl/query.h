// The clGet*Info family: a call for the size, a call for the value, as one value.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "backends/opencl/cl_api.h"

namespace pasta::opencl {

// The value of `which`, or `fallback` where the driver does not know it.
template <class Value, class Function, class Object, class Which>
Value query(const Function& get_info, Object object, Which which, Value fallback) {
  static_assert(std::is_trivially_copyable_v<Value>);
  Value value{};
  const bool known = get_info(object, which, sizeof(value), &value, nullptr) == CL_SUCCESS;
  return known ? value : fallback;
}

template <class Element, class Function, class Object, class Which>
std::vector<Element> query_list(const Function& get_info, Object object, Which which) {
  size_t bytes = 0;
  if (get_info(object, which, 0, nullptr, &bytes) != CL_SUCCESS) return {};
  std::vector<Element> list(bytes / sizeof(Element));
  if (list.empty() || get_info(object, which, bytes, list.data(), nullptr) != CL_SUCCESS) return {};
  return list;
}

// Text, without the zero that ends it and the blanks that drivers put around it.
template <class Function, class Object, class Which>
std::string query_text(const Function& get_info, Object object, Which which) {
  const std::vector<char> list = query_list<char>(get_info, object, which);
  std::string text(list.begin(), list.end());
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  text.erase(0, text.find_first_not_of(' '));
  return text;
}

}  // namespace pasta::opencl
