"""PyCUDA's build reads this as its configuration: where cuda.h and libcuda.so lie, no cuRAND.

Compiled without optimisation and debug information, and two sources at once, which halves the
wait. `bring` names the directories.
"""
import concurrent.futures
import distutils.ccompiler
import os

CUDA_INC_DIR = os.environ["PYCUDA_HEADERS"].split(":")
CUDADRV_LIB_DIR = [os.environ["PYCUDA_LINK"]]
CUDA_ENABLE_CURAND = False
CXXFLAGS = ["-O0", "-g0", "-w"]

compile_serially = distutils.ccompiler.CCompiler.compile


def compile_sources(compiler, sources, *rest, **named):
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        parts = pool.map(lambda source: compile_serially(compiler, [source], *rest, **named),
                         sources)
        return [each for part in parts for each in part]


distutils.ccompiler.CCompiler.compile = compile_sources
