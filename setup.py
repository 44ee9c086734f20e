"""Build and install PyTorch with ZenDNN: `USE_ZENDNN=1 python setup.py install`.

    install      build ZenDNN and put it into the torch that is installed
    develop      the same, with this checkout's Python files in use
    bdist_wheel  write a wheel to dist/

Environment variables:

    USE_ZENDNN=1        build ZenDNN; without it (or with 0) torch is left as it is, and
                        install and develop remove ZenDNN
    MAX_JOBS            how many compilations run at once (default: one for each core)
    CC, CXX             the C and the C++ compiler
    CFLAGS, CXXFLAGS    more options for them, read when a build is configured first
    ZENDNN_SOURCES      'debian' or 'git': fetch from there only
    PYTORCH_SOURCE_DIR  a PyTorch tree to convert instead of the pinned one
    ZENDNN_SOURCE_DIR   a oneDNN tree, or one that is renamed already
    IDEEP_SOURCE_DIR    a folder that holds ideep.hpp
    BLIS_ROOT           an installed BLIS (include/ and lib/), or its sources
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from tools.setup_helpers.commands import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
