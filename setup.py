"""Build and install PyTorch with ZenDNN: `USE_ZENDNN=1 python setup.py install`.

    install      build ZenDNN and install it into the installed torch
    develop      the same, but use the Python files of this checkout
    bdist_wheel  write a wheel to dist/

Environment variables:

    USE_ZENDNN=1        build ZenDNN; if it is 0 or not set, nothing is built, and install
                        and develop remove ZenDNN from torch
    MAX_JOBS            how many compilations run at once (default: one for each core)
    CC, CXX             the C and the C++ compiler
    CFLAGS, CXXFLAGS    more options for the compilers, read when a build is first configured
    ZENDNN_SOURCES      'debian' or 'git': fetch sources only from there
    PYTORCH_SOURCE_DIR  a PyTorch tree to convert instead of the pinned one
    ZENDNN_SOURCE_DIR   a oneDNN tree, either original or already renamed
    IDEEP_SOURCE_DIR    a folder that contains ideep.hpp
    ZENDNN_BLIS_DIR     an installed BLIS or AOCL-BLAS (include/ and lib/), or its sources
    ZENDNN_BUILD_DIR    folder for what is converted and compiled (default: build)
    ZENDNN_BUILT_DIR    folder of a build, such as build/native, whose libzendnn is taken
    SOURCE_DATE_EPOCH   time of the files in wheels, in seconds since 1970 (default: 1980)
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.setup_helpers.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
