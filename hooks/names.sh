#!/bin/sh
# names.sh CC: the names in hooks.def with their classes, as `HOOK(CLASS, NAME)` lines, for those who
# know no CUDA. The table is expanded by the preprocessor, like everything else that comes of it; a
# new class needs no line here.
set -eu
table=$(dirname "$0")/hooks.def
cc=${1:-cc}
set --
for class in $(sed -n 's/^#ifndef \([A-Z_]*\)$/\1/p' "$table"); do
    case $class in
    USE) set -- "$@" '-DUSE(...)=' ;;
    ROW | ROW_VOID) ;; # what the others come to when they are not defined
    *) set -- "$@" "-D$class(name,...)=HOOK(${class%_VOID},name)" ;;
    esac
done
# shellcheck disable=SC2086
$cc -E -P -x c "$@" "$table" | tr ' ' '\n' | sed -n 's/^HOOK(\([A-Z_]*\),\([A-Za-z0-9_]*\))$/HOOK(\1, \2)/p'
