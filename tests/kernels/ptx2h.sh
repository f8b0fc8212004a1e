#!/bin/sh
# ptx2h.sh FILE.ptx... : prints each file as a C string named after it (kernels.ptx: kernels_ptx).
set -eu
for file; do
    name=$(basename "$file" .ptx)
    printf 'static const char %s_ptx[] =\n' "$name"
    sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/^/    "/' -e 's/$/\\n"/' "$file"
    printf '    ;\n'
done
