// Python's view of csrc/device/opencl, for the tests: bytes in, bytes and dictionaries out.
#include "device/opencl/spirv/module.h"

#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstring>

#include "device/opencl/binding.h"
#include "device/opencl/decode.h"
#include "device/opencl/frontend.h"
#include "device/opencl/instrument.h"
#include "device/opencl/layout.h"
#include "device/opencl/spirv/cfg.h"
#include "device/opencl/spirv/link.h"
#include "device/opencl/spirv/types.h"
#include "device/opencl/trace_reduce.h"

namespace py = pybind11;
using namespace pasta::memory;

namespace {

std::vector<uint32_t> words_of(const py::bytes& bytes) {
  std::string_view view = bytes;
  std::vector<uint32_t> words(view.size() / 4);
  std::memcpy(words.data(), view.data(), words.size() * 4);
  return words;
}

template <class Word>
py::bytes bytes_of(const std::vector<Word>& words) {
  return py::bytes(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(Word));
}

const char* name_of(Space space) {
  constexpr const char* names[] = {"unknown", "global", "local",  "constant",
                                   "image",   "pipe",   "generic"};
  return names[static_cast<int>(space)];
}

const char* name_of(AccessKind kind) {
  constexpr const char* names[] = {"load", "store", "atomic", "copy_load", "copy_store"};
  return names[static_cast<int>(kind)];
}

py::object number(uint32_t value) {
  return value == kNone ? py::none() : py::object(py::int_(value));
}

py::dict to_dict(const Site& site) {
  py::dict d;
  d["kind"] = name_of(site.kind);
  d["space"] = name_of(site.space);
  d["bytes"] = site.bytes;
  d["root"] = number(site.root);
  d["dynamic"] = number(site.dynamic);
  d["candidates"] = site.candidates;
  d["function"] = site.function;
  d["block"] = site.block;
  d["line"] = site.line;
  d["file"] = site.file;
  d["opcode"] = site.opcode;
  d["along_row"] = site.along_row;
  return d;
}

py::dict to_dict(const Root& root) {
  py::dict d;
  d["space"] = name_of(root.space);
  d["argument"] = root.argument;
  d["name"] = root.name;
  d["bytes"] = root.bytes;
  return d;
}

py::dict to_dict(const ObjectAccess& o) {
  py::dict d;
  d["object_id"] = o.object_id;
  d["argument"] = o.argument;
  d["space"] = name_of(o.space);
  d["loads"] = o.loads;
  d["stores"] = o.stores;
  d["atomics"] = o.atomics;
  d["load_bytes"] = o.load_bytes;
  d["store_bytes"] = o.store_bytes;
  d["atomic_bytes"] = o.atomic_bytes;
  d["lines"] = o.lines;
  d["pages_4k"] = o.pages_4k;
  d["pages_64k"] = o.pages_64k;
  d["pages_2m"] = o.pages_2m;
  d["first_offset"] = o.first_offset;
  d["last_offset"] = o.last_offset;
  return d;
}

py::dict to_dict(const SiteAccess& s, const Site& site) {
  py::dict d = to_dict(site);
  d["lanes"] = s.lanes;
  d["accessed_bytes"] = s.bytes;
  d["elsewhere"] = s.elsewhere;
  d["executions"] = s.executions;
  d["sectors"] = s.sectors;
  d["ideal_sectors"] = s.ideal_sectors;
  d["bank_conflicts"] = s.bank_conflicts;
  return d;
}

py::dict to_dict(const LaunchAccess& launch, const KernelPlan& plan) {
  py::dict d;
  py::list sites, objects, blocks;
  for (const SiteAccess& s : launch.sites) sites.append(to_dict(s, plan.sites[s.site]));
  for (const ObjectAccess& o : launch.objects) objects.append(to_dict(o));
  d["sites"] = sites;
  d["objects"] = objects;
  for (const BlockAccess& b : launch.blocks)
    blocks.append(py::make_tuple(b.object_id, b.offset, b.bytes, b.accesses));
  d["blocks"] = blocks;
  d["local_size"] = std::vector<uint64_t>(launch.local_size, launch.local_size + 3);
  d["trace_lost"] = launch.trace_lost;
  d["lines_lost"] = launch.lines_lost;
  d["lanes_lost"] = launch.lanes_lost;
  return d;
}

const uint8_t* data_of(std::string_view slot) {
  return reinterpret_cast<const uint8_t*>(slot.data());
}

}  // namespace

PYBIND11_MODULE(_spirv, m) {
  m.def("round_trip", [](const py::bytes& module) {
    return bytes_of(pasta::spirv::Module::parse(words_of(module)).write());
  });
  m.def("link", [](const std::vector<py::bytes>& programs) {
    std::vector<pasta::spirv::Module> modules;
    for (const py::bytes& program : programs)
      modules.push_back(pasta::spirv::Module::parse(words_of(program)));
    return bytes_of(pasta::spirv::link(std::move(modules)).write());
  });
  // Classes of equally often executed blocks of each function, by the labels' ids.
  m.def("count_classes", [](const py::bytes& bytes) {
    auto module = pasta::spirv::Module::parse(words_of(bytes));
    pasta::spirv::Definitions definitions(module);
    std::vector<std::map<uint32_t, uint32_t>> all;
    for (const auto& function : module.functions) {
      auto classes = pasta::spirv::count_classes(definitions, function);
      auto& of_function = all.emplace_back();
      for (size_t b = 0; b < classes.size(); ++b)
        of_function[function.blocks[b].label] = classes[b];
    }
    return all;
  });
  m.def("size_of_types", [](const py::bytes& bytes) {
    auto module = pasta::spirv::Module::parse(words_of(bytes));
    pasta::spirv::Definitions definitions(module);
    pasta::spirv::Types types(module, definitions);
    std::map<uint32_t, std::optional<uint64_t>> sizes;
    for (const auto& global : module.section(pasta::spirv::Section::globals)) {
      bool is_type = global.opcode() >= pasta::spirv::OpTypeVoid &&
                     global.opcode() <= pasta::spirv::OpTypePointer;
      if (is_type) sizes[global.result()] = types.stride_of(global.result());
    }
    return sizes;
  });

  py::class_<KernelPlan>(m, "KernelPlan")
      .def_readonly("name", &KernelPlan::name)
      .def_readonly("argument_count", &KernelPlan::argument_count)
      .def_readonly("counters", &KernelPlan::counters)
      .def_readonly("dynamic_sites", &KernelPlan::dynamic_sites)
      .def_property_readonly("buffer_argument", &KernelPlan::buffer_argument)
      .def_property_readonly("lost_words",  // of the slot: what found no room, of each meeting
                             [](const KernelPlan& plan) {
                               std::vector<uint32_t> words;
                               for (uint32_t m = 0; m < plan.meetings; ++m) {
                                 uint32_t lost = plan.meeting_counter(m, KernelPlan::kLost);
                                 words.push_back(plan.slot_layout().counter(0, lost));
                               }
                               return words;
                             })
      .def_property_readonly("launch_argument", &KernelPlan::launch_argument)
      .def_property_readonly("roots",
                             [](const KernelPlan& plan) {
                               py::list list;
                               for (const Root& root : plan.roots) list.append(to_dict(root));
                               return list;
                             })
      .def_property_readonly("sites", [](const KernelPlan& plan) {
        py::list list;
        for (const Site& site : plan.sites) list.append(to_dict(site));
        return list;
      });

  // (words, plans, {kernel: reason}, error)
  m.def(
      "instrument",
      [](const py::bytes& module, bool lines, bool extents, bool trace, bool many_cores,
         bool int64_atomics, bool sub_groups, bool blocks, bool divergence, bool coalescing,
         bool bank_conflicts, uint32_t width,
         std::function<bool(const std::string&)> wants) {
        InstrumentOptions options;
        Reducers& reducers = options.reducers;
        reducers.lines = lines;
        reducers.extents = extents;
        reducers.trace = trace;
        reducers.many_cores = many_cores;
        reducers.int64_atomics = int64_atomics;
        reducers.sub_groups = sub_groups;
        reducers.blocks = blocks;
        reducers.divergence = divergence;
        reducers.coalescing = coalescing;
        reducers.bank_conflicts = bank_conflicts;
        reducers.width = width;
        options.wants = std::move(wants);
        auto words = words_of(module);
        Instrumented result = instrument(words.data(), words.size(), options);
        py::dict skipped;
        for (const Skipped& s : result.skipped) skipped[py::str(s.kernel)] = s.reason;
        return py::make_tuple(bytes_of(result.words), result.kernels, skipped, result.error);
      },
      py::arg("module"), py::arg("lines") = true, py::arg("extents") = false,
      py::arg("trace") = false, py::arg("many_cores") = false, py::arg("int64_atomics") = true,
      py::arg("sub_groups") = true, py::arg("blocks") = false, py::arg("divergence") = false,
      py::arg("coalescing") = false, py::arg("bank_conflicts") = false, py::arg("width") = 32, py::arg("wants") = nullptr);

  py::class_<BoundObject>(m, "BoundObject")
      .def(py::init([](int64_t object_id, uint64_t bytes, uint64_t offset, uint64_t texel_bytes) {
             return BoundObject{object_id, bytes, offset, texel_bytes};
           }),
           py::arg("object_id") = kNoObject, py::arg("bytes") = 0, py::arg("offset") = 0,
           py::arg("texel_bytes") = 0);
  py::class_<AddressRange>(m, "AddressRange")
      .def(py::init([](int64_t object_id, uint64_t address, uint64_t bytes) {
             return AddressRange{object_id, address, bytes};
           }),
           py::arg("object_id"), py::arg("address"), py::arg("bytes"));
  py::class_<Binding>(m, "Binding")
      .def_readonly("slot_bytes", &Binding::slot_bytes)
      .def_readonly("room_bytes", &Binding::room_bytes)
      .def_property_readonly("data",
                             [](const Binding& binding) { return bytes_of(binding.words); });
  m.def(
      "bind",
      [](const KernelPlan& plan, std::vector<BoundObject> objects, std::vector<AddressRange> ranges,
         uint64_t map_bytes, uint64_t trace_records, uint64_t buffer_bytes,
         uint64_t scratch_bytes, uint64_t scratches) {
        BindingLimits limits;
        limits.scratch = ScratchPool::fit(buffer_bytes, scratch_bytes, scratches);
        limits.map_bytes = map_bytes;
        limits.trace_records = trace_records;
        return make_binding(plan, std::move(objects), std::move(ranges), limits);
      },
      py::arg("plan"), py::arg("objects"), py::arg("ranges") = std::vector<AddressRange>{},
      py::arg("map_bytes") = BindingLimits{}.map_bytes, py::arg("trace_records") = 0,
      py::arg("buffer_bytes") = 0, py::arg("scratch_bytes") = 0, py::arg("scratches") = 0);

  py::class_<Arena::Place>(m, "Place")
      .def_readonly("launch_word", &Arena::Place::launch_word)
      .def_readonly("slot_offset", &Arena::Place::slot_offset)
      .def_readonly("binding_offset", &Arena::Place::binding_offset);
  py::class_<Arena>(m, "Arena")
      .def(py::init<uint64_t>())
      .def("place", &Arena::place)
      .def("fits", &Arena::fits)
      .def_property_readonly("used", &Arena::used)
      .def("reset", &Arena::reset);

  m.def("decode", [](const KernelPlan& plan, const Binding& binding, uint64_t work_items,
                     const py::bytes& slot) {
    std::string_view view = slot;
    return to_dict(decode(plan, binding, work_items, data_of(view), view.size()), plan);
  });
  m.def(
      "reduce_trace",
      [](const KernelPlan& plan, const Binding& binding, const py::bytes& slot, uint32_t width,
         uint32_t banks) {
        std::string_view view = slot;
        return to_dict(reduce_trace(plan, binding, data_of(view), view.size(), {width, banks}),
                       plan);
      },
      py::arg("plan"), py::arg("binding"), py::arg("slot"), py::arg("width") = 32,
      py::arg("banks") = 32);

  m.def(
      "compile",
      [](const std::string& library, const std::string& source, const std::string& options,
         std::vector<std::pair<std::string, std::string>> headers) {
        std::string why;
        static std::map<std::string, std::unique_ptr<FrontEnd>> loaded;
        auto& front_end = loaded[library];
        if (!front_end)
          front_end = library.empty() ? FrontEnd::find({}, &why) : FrontEnd::load(library, &why);
        if (!front_end) return py::make_tuple(py::bytes(), why);
        CompileRequest request;
        request.source = source;
        request.options = options;
        request.headers = std::move(headers);
        request.device_extensions =
            "cl_khr_fp64 cl_khr_fp16 cl_khr_int64_base_atomics cl_khr_int64_extended_atomics";
        CompileResult result = front_end->compile(request);
        return py::make_tuple(bytes_of(result.words), result.log);
      },
      py::arg("library"), py::arg("source"), py::arg("options") = "",
      py::arg("headers") = std::vector<std::pair<std::string, std::string>>{});
}
