"""How the libraries beside the driver are named."""

# How the files of the CUDA toolkit, cuDNN, NCCL and the driver begin.
CUDA_LIBRARIES = ("libcu", "libnv", "libnccl")
