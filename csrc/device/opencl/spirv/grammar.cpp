// Source: the operand lists of the SPIR-V specification 1.6 (chapter 3.52, Instructions).
#include "device/opencl/spirv/grammar.h"

#include <algorithm>
#include <iterator>

namespace pasta::spirv {
namespace {

constexpr Shape kShapes[] = {
    {0, 0, ""},
    {1, 1, "TR"},
    {2, 2, "s"},
    {3, 3, "L"},
    {4, 4, "s"},
    {5, 5, "is"},
    {6, 6, "ils"},
    {7, 7, "Rs"},
    {8, 8, "ill"},
    {10, 10, "s"},
    {11, 11, "Rs"},
    {12, 12, "TRilX"},
    {14, 14, "ll"},
    {15, 15, "lis*"},
    {16, 16, "iL"},
    {17, 17, "l"},
    {19, 20, "R"},
    {21, 22, "RL"},
    {23, 24, "RiL"},
    {25, 25, "RiL"},
    {26, 26, "R"},
    {27, 27, "Ri"},
    {28, 28, "Rii"},
    {29, 29, "Ri"},
    {30, 30, "R*"},
    {31, 31, "Rs"},
    {32, 32, "Rli"},
    {33, 33, "R*"},
    {34, 37, "R"},
    {38, 38, "Rl"},
    {39, 39, "il"},
    {41, 42, "TR"},
    {43, 43, "TRL"},
    {44, 44, "TR*"},
    {45, 45, "TRL"},
    {46, 46, "TR"},
    {48, 49, "TR"},
    {50, 50, "TRL"},
    {51, 51, "TR*"},
    {52, 52, "TRl*"},
    {54, 54, "TRli"},
    {55, 55, "TR"},
    {56, 56, ""},
    {57, 57, "TR*"},
    {59, 59, "TRl*"},
    {61, 61, "TRiM"},
    {62, 62, "iiM"},
    {63, 63, "iiMM"},
    {64, 64, "iiiMM"},
    {65, 67, "TR*"},
    {69, 70, "TR*"},
    {71, 71, "iL"},
    {72, 72, "iL"},
    {73, 73, "R"},
    {74, 74, "i*"},
    {75, 75, "iL"},
    {77, 78, "TR*"},
    {79, 79, "TRiiL"},
    {80, 80, "TR*"},
    {81, 81, "TRiL"},
    {82, 82, "TRiiL"},
    {83, 84, "TR*"},
    {86, 86, "TRii"},
    {87, 88, "TRiiI"},
    {95, 95, "TRiiI"},
    {98, 98, "TRiiI"},
    {99, 99, "iiiI"},
    {100, 107, "TR*"},
    {109, 122, "TR*"},
    {123, 123, "TRil"},
    {124, 124, "TRi"},
    {126, 152, "TR*"},
    {154, 191, "TR*"},
    {194, 205, "TR*"},
    {207, 215, "TR*"},
    {224, 224, "iii"},
    {225, 225, "ii"},
    {227, 227, "TR*"},
    {228, 228, "iiii"},
    {229, 242, "TR*"},
    {245, 245, "TR*"},
    {246, 246, "iiL"},
    {247, 247, "iL"},
    {248, 248, "R"},
    {249, 249, "i"},
    {250, 250, "iiiL"},
    {251, 251, "iiS"},
    {252, 253, ""},
    {254, 254, "i"},
    {255, 255, ""},
    {256, 257, "il"},
    {259, 259, "TR*"},
    {260, 260, "iii"},
    {261, 263, "TR*"},
    {264, 271, "TRili"},
    {274, 279, "TR*"},
    {280, 281, "iiii"},
    {282, 286, "TR*"},
    {287, 288, "iiiii"},
    {291, 296, "TR*"},
    {297, 298, "i"},
    {299, 300, "TR*"},
    {301, 301, "ii"},
    {302, 302, "iii"},
    {303, 304, "TR*"},
    {317, 317, ""},
    {318, 318, "TR*"},
    {319, 319, "iii"},
    {321, 321, "TR*"},
    {322, 322, "R"},
    {323, 323, "TRL"},
    {324, 326, "TR*"},
    {327, 327, "R"},
    {328, 328, "TR*"},
    {329, 329, "iii"},
    {330, 330, "s"},
    {331, 331, "il*"},
    {332, 332, "il*"},
    {333, 341, "TR*"},
    {342, 342, "TRili"},
    {343, 348, "TR*"},
    {349, 364, "TRil*"},
    {365, 366, "TR*"},
    {400, 403, "TR*"},
    {4417, 4417, "Rl"},
    {4418, 4418, "TRl*"},  // OpUntypedVariableKHR
    {4419, 4420, "TR*"},   // untyped access chains
    {4421, 4422, "TR*"},   // sub-group ballot
    {4423, 4424, "TR*"},   // untyped pointer access chains
    {4426, 4426, "*"},     // OpUntypedPrefetchKHR
    {4428, 4432, "TR*"},   // sub-group votes, OpGroupNonUniformRotateKHR
    {4450, 4452, "TRiiL"},
    {4453, 4455, "TRiiiL"},  // dot products
    {5056, 5056, "TRi"},     // OpReadClockKHR
    {5571, 5575, "TR*"},
    {5576, 5576, "ii"},   // Intel sub-group shuffles, block read and write
    {5585, 5598, "TR*"},  // Intel integer functions
    {5614, 5615, "TR*"},  // atomic float minimum and maximum
    {5630, 5630, "i"},
    {5631, 5631, "TRii"},  // assume, expect
    {5632, 5633, "iL"},    // OpDecorateString, OpMemberDecorateString
    {5818, 5819, "TR*"},
    {5820, 5820, "i"},  // variable-length arrays
    {5887, 5887, "L"},  // OpLoopControlINTEL
    {5934, 5934, "TRi"},
    {5938, 5938, "TRi"},  // cross-work-group casts
    {6035, 6035, "TR*"},  // OpAtomicFAddEXT
    {6116, 6117, "TRi"},  // bfloat16 conversions
    {6142, 6143, "iii"},
    {6145, 6145, "TRi"},  // split barrier, arithmetic fence
};

}  // namespace

const Shape* shape_of(uint16_t opcode) {
  const Shape* shape = std::partition_point(std::begin(kShapes), std::end(kShapes),
                                            [&](const Shape& s) { return s.last < opcode; });
  return shape != std::end(kShapes) && shape->first <= opcode ? shape : nullptr;
}

}  // namespace pasta::spirv
