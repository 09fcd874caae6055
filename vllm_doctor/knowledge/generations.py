"""The compute capability at which each generation of NVIDIA's cards begins (CUDA C++ Programming Guide, compute
capabilities). A generation goes up to the next one's first."""

VOLTA = 7.0
TURING = 7.5
AMPERE = 8.0
ADA = 8.9  # the first to multiply 8-bit floats
HOPPER = 9.0
BLACKWELL = 10.0  # of data centres
THOR = 11.0
RTX_BLACKWELL = 12.0
