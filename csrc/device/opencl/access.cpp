#include "device/opencl/access.h"

#include <string>

namespace pasta::memory {

using namespace spirv;

bool is_shared_storage(StorageClass storage) {
  return storage == StorageCrossWorkgroup || storage == StorageUniformConstant ||
         storage == StorageWorkgroup || storage == StorageGeneric;
}

namespace {

class Finder {
 public:
  Finder(const Instruction& instruction, const Definitions& definitions, const Types& types,
         Id opencl_std)
      : i_(instruction), definitions_(definitions), types_(types), opencl_std_(opencl_std) {}

  std::vector<Access> find() {
    switch (i_.opcode()) {
      case OpLoad: fixed(AccessKind::load, i_.operand(0), i_.type(), 1); break;
      case OpStore: fixed(AccessKind::store, i_.operand(0), type_of(i_.operand(1)), 2); break;
      case OpCopyMemory: copy_memory(); break;
      case OpCopyMemorySized: copy_memory_sized(); break;
      case OpAtomicStore:
        fixed(AccessKind::atomic, i_.operand(0), type_of(i_.operand(3)), kNoOperands);
        break;
      case OpAtomicFlagTestAndSet:
      case OpAtomicFlagClear: flag(); break;
      case OpGroupAsyncCopy: async_copy(); break;
      case OpImageSampleExplicitLod:
      case OpImageSampleImplicitLod:
      case OpImageFetch:
      case OpImageRead: opaque(AccessKind::load, i_.operand(0), 0); break;
      case OpImageWrite: opaque(AccessKind::store, i_.operand(0), 0); break;
      case OpReadPipe: pipe(AccessKind::load, 1, 2); break;
      case OpWritePipe: pipe(AccessKind::store, 1, 2); break;
      case OpReservedReadPipe: pipe(AccessKind::load, 3, 4); break;
      case OpReservedWritePipe: pipe(AccessKind::store, 3, 4); break;
      case OpExtInst: extended(); break;
      case OpEnqueueKernel: throw Unsupported("kernels enqueued by a kernel");
      default:
        if (is_atomic()) {
          fixed(AccessKind::atomic, i_.operand(0), i_.type(), kNoOperands);
        } else if (!is_harmless()) {
          refuse_pointers();
        }
    }
    return std::move(found_);
  }

 private:
  static constexpr size_t kNoOperands = ~size_t{0};

  bool is_atomic() const {
    uint16_t op = i_.opcode();
    return op == OpAtomicLoad || (op >= OpAtomicExchange && op <= OpAtomicXor) ||
           op == OpAtomicFMinEXT || op == OpAtomicFMaxEXT || op == OpAtomicFAddEXT;
  }

  // Instructions that pass pointers on without looking behind them.
  bool is_harmless() const {
    switch (i_.opcode()) {
      case OpPhi:
      case OpSelect:
      case OpFunctionCall:
      case OpFunctionParameter:
      case OpVariable:
      case OpUntypedVariableKHR:
      case OpAccessChain:
      case OpInBoundsAccessChain:
      case OpPtrAccessChain:
      case OpInBoundsPtrAccessChain:
      case OpUntypedAccessChainKHR:
      case OpUntypedInBoundsAccessChainKHR:
      case OpUntypedPtrAccessChainKHR:
      case OpUntypedInBoundsPtrAccessChainKHR:
      case OpUntypedPrefetchKHR:
      case OpCopyObject:
      case OpCopyLogical:
      case OpConvertPtrToU:
      case OpConvertUToPtr:
      case OpPtrCastToGeneric:
      case OpGenericCastToPtr:
      case OpGenericCastToPtrExplicit:
      case OpPtrCastToCrossWorkgroupINTEL:
      case OpCrossWorkgroupCastToPtrINTEL:
      case OpGenericPtrMemSemantics:
      case OpBitcast:
      case OpReturnValue:
      case OpLifetimeStart:
      case OpLifetimeStop:
      case OpGroupWaitEvents:
      case OpCompositeConstruct:
      case OpCompositeExtract:
      case OpCompositeInsert:
      case OpExpectKHR: return true;
      default: return i_.opcode() >= OpPtrEqual && i_.opcode() <= OpPtrDiff;
    }
  }

  void refuse_pointers() {
    if (!i_.shape())
      throw Unsupported("SPIR-V instruction " + std::to_string(i_.opcode()) +
                        ", which pasta does not know");
    if (i_.is_terminator() || i_.is_debug_line()) return;
    for (size_t position : i_.id_positions(0)) {
      if (i_.words()[position] == i_.result()) continue;
      auto pointer = types_.pointer_of(i_.words()[position]);
      if (pointer && is_shared_storage(pointer->storage)) {
        throw Unsupported("SPIR-V instruction " + std::to_string(i_.opcode()) +
                          " on memory that is not private");
      }
    }
  }

  Id type_of(Id value) const { return definitions_.at(value).type(); }

  uint64_t size_of(Id type) const {
    auto bytes = types_.size_of(type);
    if (!bytes) throw Unsupported("an access to a type without a size");
    return *bytes;
  }

  bool is_private(Id pointer) const {
    auto type = types_.pointer_of(pointer);
    return type && !is_shared_storage(type->storage);
  }

  // The alignment that the memory operands at `operand` promise, else the type's own.
  uint64_t alignment(Id type, size_t operand) const {
    if (operand < i_.operand_count() && (i_.operand(operand) & MemoryAccessAligned))
      return i_.operand(operand + 1);
    return types_.alignment_of(type).value_or(1);
  }

  Access& add(AccessKind kind, AccessForm form, Id pointer, uint64_t bytes, uint64_t alignment) {
    Access access{kind};
    access.form = form;
    access.pointer = pointer;
    access.bytes = bytes;
    access.alignment = alignment;
    return found_.emplace_back(access);
  }

  void fixed(AccessKind kind, Id pointer, Id type, size_t memory_operands) {
    if (is_private(pointer)) return;  // events and other types without a size live there
    add(kind, AccessForm::fixed, pointer, size_of(type), alignment(type, memory_operands));
  }

  void flag() { add(AccessKind::atomic, AccessForm::fixed, i_.operand(0), 4, 4); }

  void opaque(AccessKind kind, Id object, uint64_t bytes) {
    add(kind, AccessForm::opaque, object, bytes, 1);
  }

  void copy_memory() {
    auto target = types_.pointer_of(i_.operand(0));
    if (!target || !target->pointee) throw Unsupported("OpCopyMemory through an untyped pointer");
    uint64_t bytes = size_of(target->pointee);
    uint64_t aligned = alignment(target->pointee, 2);
    if (!is_private(i_.operand(1)))
      add(AccessKind::copy_load, AccessForm::fixed, i_.operand(1), bytes, aligned);
    if (!is_private(i_.operand(0)))
      add(AccessKind::copy_store, AccessForm::fixed, i_.operand(0), bytes, aligned);
  }

  void copy_memory_sized() {
    Id count = i_.operand(2);
    auto bytes = types_.constant(count);
    bool aligned = i_.operand_count() > 3 && (i_.operand(3) & MemoryAccessAligned);
    for (auto [kind, pointer] : {std::pair(AccessKind::copy_load, i_.operand(1)),
                                 std::pair(AccessKind::copy_store, i_.operand(0))}) {
      if (is_private(pointer)) continue;
      Access& access = add(kind, bytes ? AccessForm::fixed : AccessForm::sized, pointer,
                           bytes.value_or(1), aligned ? i_.operand(4) : 1);
      if (!bytes) access.count = count;
    }
  }

  // Scope, destination, source, number of elements, stride, event. The stride is that of the global
  // side.
  void async_copy() {
    auto destination = types_.pointer_of(i_.operand(1));
    if (!destination || !destination->pointee)
      throw Unsupported("an async copy through an untyped pointer");
    auto element = types_.stride_of(destination->pointee);
    if (!element) throw Unsupported("an async copy of a type without a size");
    bool to_local = destination->storage == StorageWorkgroup;
    for (bool store : {false, true}) {
      Access& access = add(store ? AccessKind::copy_store : AccessKind::copy_load,
                           AccessForm::elements, i_.operand(store ? 1 : 2), *element, *element);
      access.count = i_.operand(3);
      if (store != to_local) access.stride = i_.operand(4);
    }
  }

  void pipe(AccessKind kind, size_t pointer, size_t packet_size) {
    uint64_t bytes = types_.constant(i_.operand(packet_size)).value_or(0);
    opaque(kind, i_.operand(0), bytes);
    if (!is_private(i_.operand(pointer))) {
      add(kind == AccessKind::load ? AccessKind::store : AccessKind::load, AccessForm::fixed,
          i_.operand(pointer), bytes, 1);
    }
  }

  void vector(AccessKind kind, Id pointer, Id index, uint64_t bytes, uint64_t index_bytes,
              uint64_t aligned) {
    Access& access = add(kind, AccessForm::fixed, pointer, bytes, aligned);
    access.index = index;
    access.index_bytes = index_bytes;
  }

  uint64_t components(Id type) const {
    const Instruction& definition = definitions_.at(type);
    return definition.opcode() == OpTypeVector ? definition.operand(1) : 1;
  }

  void extended() {
    if (!opencl_std_ || i_.operand(0) != opencl_std_) {
      refuse_pointers();
      return;
    }
    auto argument = [&](size_t n) { return i_.operand(2 + n); };
    switch (i_.operand(1)) {
      case kStdVloadn: {
        uint64_t bytes = size_of(i_.type());
        vector(AccessKind::load, argument(1), argument(0), bytes, bytes,
               bytes / components(i_.type()));
        break;
      }
      case kStdVstoren: {
        uint64_t bytes = size_of(type_of(argument(0)));
        vector(AccessKind::store, argument(2), argument(1), bytes, bytes,
               bytes / components(type_of(argument(0))));
        break;
      }
      case kStdVloadHalf:
        vector(AccessKind::load, argument(1), argument(0), kHalfBytes, kHalfBytes, kHalfBytes);
        break;
      case kStdVloadHalfn:
      case kStdVloadaHalfn:
        half(AccessKind::load, argument(1), argument(0), components(i_.type()));
        break;
      case kStdVstoreHalf:
      case kStdVstoreHalfR:
        vector(AccessKind::store, argument(2), argument(1), kHalfBytes, kHalfBytes, kHalfBytes);
        break;
      case kStdVstoreHalfn:
      case kStdVstoreHalfnR:
      case kStdVstoreaHalfn:
      case kStdVstoreaHalfnR:
        half(AccessKind::store, argument(2), argument(1), components(type_of(argument(0))));
        break;
      case kStdFract:
      case kStdModf:
      case kStdSincos: fixed(AccessKind::store, argument(1), i_.type(), kNoOperands); break;
      case kStdFrexp:
      case kStdLgammaR: integer_result(argument(1)); break;
      case kStdRemquo: integer_result(argument(2)); break;
      case kStdPrintf:
      case kStdPrefetch: break;
      default: refuse_pointers();
    }
  }

  void half(AccessKind kind, Id pointer, Id index, uint64_t n) {
    uint32_t number = i_.operand(1);
    bool aligned =
        number == kStdVloadaHalfn || number == kStdVstoreaHalfn || number == kStdVstoreaHalfnR;
    uint64_t step = (aligned && n == 3 ? 4 : n) * kHalfBytes;
    vector(kind, pointer, index, n * kHalfBytes, step, aligned ? step : kHalfBytes);
  }

  // Functions that return an int, or a vector of it, through a pointer.
  void integer_result(Id pointer) {
    uint64_t bytes = 4 * components(i_.type());
    if (!is_private(pointer)) add(AccessKind::store, AccessForm::fixed, pointer, bytes, bytes);
  }

  static constexpr uint64_t kHalfBytes = 2;
  const Instruction& i_;
  const Definitions& definitions_;
  const Types& types_;
  Id opencl_std_;
  std::vector<Access> found_;
};

}  // namespace

std::vector<Access> accesses_of(const Instruction& instruction, const Definitions& definitions,
                                const Types& types, Id opencl_std) {
  return Finder(instruction, definitions, types, opencl_std).find();
}

}  // namespace pasta::memory
