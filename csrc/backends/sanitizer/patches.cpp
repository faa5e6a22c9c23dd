// The patches of device/nvidia/patches.cu as nvcc compiled them, for sanitizerAddPatches. PASTA_PATCHES is the path of
// the fat binary.
asm(".section .rodata\n"
    ".balign 64\n"
    ".global pasta_sanitizer_patches\n"
    ".hidden pasta_sanitizer_patches\n"
    ".type pasta_sanitizer_patches, @object\n"
    "pasta_sanitizer_patches:\n"
    ".incbin \"" PASTA_PATCHES "\"\n"
    ".size pasta_sanitizer_patches, . - pasta_sanitizer_patches\n"
    ".text\n");
