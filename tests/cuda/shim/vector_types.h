// CUDA's small vectors, with its alignments.
#pragma once

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

#define CUDA_SHIM_VECTORS(name, type)                                     \
  struct name##1 {                                                        \
    type x;                                                               \
  };                                                                      \
  struct alignas(2 * sizeof(type)) name##2 {                              \
    type x, y;                                                            \
  };                                                                      \
  struct alignas(4 * sizeof(type) < 16 ? 4 * sizeof(type) : 16) name##4 { \
    type x, y, z, w;                                                      \
  };                                                                      \
  inline name##1 make_##name##1(type x) { return {x}; }                   \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }        \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

CUDA_SHIM_VECTORS(char, signed char)
CUDA_SHIM_VECTORS(uchar, unsigned char)
CUDA_SHIM_VECTORS(short, short)
CUDA_SHIM_VECTORS(ushort, unsigned short)
CUDA_SHIM_VECTORS(int, int)
CUDA_SHIM_VECTORS(uint, unsigned)
CUDA_SHIM_VECTORS(longlong, long long)
CUDA_SHIM_VECTORS(ulonglong, unsigned long long)
CUDA_SHIM_VECTORS(float, float)
CUDA_SHIM_VECTORS(double, double)
#undef CUDA_SHIM_VECTORS

struct float3 {
  float x, y, z;
};
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
struct int3 {
  int x, y, z;
};
inline int3 make_int3(int x, int y, int z) { return {x, y, z}; }
