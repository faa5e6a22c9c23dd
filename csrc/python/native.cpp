// pasta._native: demangling, and the session itself for tests of the writer without an injected library.

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <pybind11/pybind11.h>

#include "session/demangle.h"
#include "session/lifetime.h"
#include "session/session.h"

namespace py = pybind11;

namespace {

const pasta::TableInfo& find_table(const std::string& name) {
  for (uint16_t id = 1; id < pasta::kTableIdEnd; ++id) {
    const pasta::TableInfo* table = pasta::table_info(id);
    if (table != nullptr && name == table->name) return *table;
  }
  throw py::key_error("no table " + name);
}

void store_null(uint8_t* field, pasta::ColumnType type) {
  switch (type) {
    case pasta::ColumnType::i64: std::memcpy(field, &pasta::kNullI64, 8); break;
    case pasta::ColumnType::f64: std::memcpy(field, &pasta::kNullF64, 8); break;
    case pasta::ColumnType::i32: std::memcpy(field, &pasta::kNullI32, 4); break;
    case pasta::ColumnType::str: std::memset(field, 0, 4); break;
    case pasta::ColumnType::bool_:
    case pasta::ColumnType::enum_: *field = 255; break;
  }
}

template <class T>
void store(uint8_t* field, T value) {
  std::memcpy(field, &value, sizeof(value));
}

void store_value(uint8_t* field, pasta::ColumnType type, const py::handle& value) {
  switch (type) {
    case pasta::ColumnType::i64: store(field, value.cast<int64_t>()); break;
    case pasta::ColumnType::f64: store(field, value.cast<double>()); break;
    case pasta::ColumnType::i32: store(field, value.cast<int32_t>()); break;
    case pasta::ColumnType::str: store(field, pasta::intern(value.cast<std::string>())); break;
    case pasta::ColumnType::bool_: store(field, static_cast<uint8_t>(value.cast<bool>())); break;
    case pasta::ColumnType::enum_: store(field, value.cast<uint8_t>()); break;
  }
}

// Emits one record given as {column: value}; enums are numbers, columns left out are null.
void emit(const std::string& table_name, const py::dict& values) {
  const pasta::TableInfo& table = find_table(table_name);
  std::string record(table.record_bytes, '\0');
  auto* bytes = reinterpret_cast<uint8_t*>(record.data());
  for (uint16_t i = 0; i < table.column_count; ++i) {
    const pasta::ColumnInfo& column = table.columns[i];
    const py::str key(column.name);
    if (values.contains(key) && !values[key].is_none()) {
      store_value(bytes + column.offset, column.type, values[key]);
    } else {
      store_null(bytes + column.offset, column.type);
    }
  }
  pasta::emit_bytes(table.id, record.data(), table.record_bytes);
}

}  // namespace

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native parts of pasta";
  module.def("demangle", &pasta::demangle, py::arg("name"), "The readable form of a C++ symbol, or the name itself");
  module.def("now_ns", &pasta::now_ns, "The session's clock: CLOCK_MONOTONIC in nanoseconds");

  auto session = module.def_submodule(
      "session", "This process's own session, configured by PASTA_* variables: for tests, not for the injected one");
  session.def("ensure", &pasta::ensure_session);
  session.def("emit", &emit, py::arg("table"), py::arg("values"));
  session.def("next_id", &pasta::next_id);
  session.def("collecting", &pasta::collecting);
  session.def("select_launch", [](const std::string& name) { return pasta::select_launch(name); });
  session.def("range_push", [](const std::string& name, const std::string& domain) {
    pasta::range_push(name, pasta::AnnotationSource::nvtx, domain);
  }, py::arg("name"), py::arg("domain") = "");
  session.def("range_pop", [](const std::string& domain) {
    pasta::range_pop(pasta::AnnotationSource::nvtx, domain);
  }, py::arg("domain") = "");
  session.def("start", &pasta::collection_start);
  session.def("stop", &pasta::collection_stop);
  session.def("report_loss", [](const std::string& source, const std::string& table, int64_t records,
                                const std::string& cause) { pasta::report_loss(source, table, records, cause); });
  session.def("flush", [](int64_t timeout_ns) { pasta::flush(timeout_ns); },
              py::call_guard<py::gil_scoped_release>(), py::arg("timeout_ns") = 2'000'000'000);
  session.def("finish", &pasta::finish, py::call_guard<py::gil_scoped_release>(), py::arg("how"),
              py::arg("status"));
}
