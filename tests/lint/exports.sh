#!/bin/sh
# libcuslice.so exports the driver's names and its own, needs glibc's own libraries only, and keeps its
# thread-local words where no call and no allocation is needed to reach them.
. tests/lint/common

so=$B/libcuslice.so
[ -f "$so" ] || { echo 'libcuslice.so is not built'; exit 77; }
[ -z "$SAN" ] || { echo 'not of a sanitized build'; exit 77; }

exported() {
    nm -D --defined-only "$so" | sed 's/.* //; s/@.*//' |
        grep -vxE 'cu[A-Z][A-Za-z0-9_]*|nvml[A-Z][A-Za-z0-9_]*|cuslice_[a-z0-9_]*|dlv?sym|dlopen'
}

needed() {
    readelf -d "$so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
        grep -vxE 'libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux[a-z0-9_-]*\.so\.[0-9]'
}

dynamic_tls() {
    nm -D -u "$so" | grep -E '__tls_get_addr|_dl_tlsdesc'
    readelf -rW "$so" | grep -E 'TLSDESC|DTPMOD'
}

hardening() {
    readelf -lW "$so" | grep -q GNU_RELRO || echo 'no relro'
    readelf -dW "$so" | grep -qE 'BIND_NOW|Flags:.*NOW' || echo 'no immediate binding'
    readelf -lW "$so" | grep -E 'GNU_STACK.*RWE' && echo 'executable stack'
    readelf -dW "$so" | grep -E 'TEXTREL|RPATH|RUNPATH'
    return 0
}

check 'must not be exported' exported
check 'must not be needed' needed
check 'dynamic thread-local storage' dynamic_tls
check 'hardening' hardening
finish
