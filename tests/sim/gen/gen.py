#!/usr/bin/env python3
"""Generates what the simulated driver knows from NVIDIA's public headers.

usage: gen.py --include DIR --symbols FILE --out DIR

  procs.c   the table behind cuGetProcAddress: base name, version, flavour, address
  stubs.c   a weak definition of every symbol that no client source implements
  abi.c     compile-time proof that each row's symbol has the prototype the header gives its version
  errors.h  ERROR(NAME, VALUE) for every CUresult

symbols.txt is the list of names; the headers say which CUDA version brought which of them. A name
that an older header lacks is still exported, and cuGetProcAddress does not know it.
"""
import argparse
import os
import re
import sys

TYPEDEF = re.compile(r"typedef\s+\w+\s*\(\s*CUDAAPI\s*\*\s*PFN_(\w+?)_v(\d+)(_ptsz|_ptds)?\s*\)")
SYMBOL = re.compile(r"^(cu\w*?)(?:_v(\d+))?(_ptsz|_ptds)?$")
HEADER = "cudaTypedefs.h"
MORE_HEADERS = ("cudaProfilerTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h",
                "cudaVDPAUTypedefs.h")  # read as text alone: what they include is often missing
NEVER = 0x7FFFFFFF


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def typedefs(include, headers):
    """(base name, flavour) -> sorted CUDA versions at which an ABI of that name appeared."""
    found = {}
    for header in headers:
        path = os.path.join(include, header)
        if header != HEADER and not os.path.exists(path):
            continue
        for name, version, flavour in TYPEDEF.findall(read(path)):
            found.setdefault((name, flavour), set()).add(int(version))
    return {key: sorted(versions) for key, versions in found.items()}


def symbols(path):
    """(base name, flavour) -> exported symbols, oldest ABI first."""
    found = {}
    for line in read(path).split("\n"):
        line = line.split("#")[0].strip()
        if not line:
            continue
        base, abi, flavour = SYMBOL.match(line).groups()
        found.setdefault((base, flavour or ""), []).append((int(abi or 1), line))
    return {key: [symbol for _, symbol in sorted(rows)] for key, rows in found.items()}


def match(versions, exported):
    """Rows (base, flavour, since, symbol): the n-th ABI of a name is its n-th exported symbol."""
    rows = []
    for key, names in sorted(exported.items()):
        since = versions.get(key, [])
        if len(since) > len(names):
            sys.exit(f"gen.py: {key[0]}{key[1]} has {len(since)} versions in the headers and only "
                     f"{len(names)} symbols in the list")
        since = since + [NEVER] * (len(names) - len(since))
        rows += [(key[0], key[1], number, name) for number, name in zip(since, names)]
    return rows


def write(directory, name, lines):
    path = os.path.join(directory, name)
    text = "\n".join(["/* Made by tests/sim/gen/gen.py; changes here are lost. */"] + lines) + "\n"
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def write_procs(directory, rows):
    lines = ['#include "procs.h"', ""]
    lines += [f"int {symbol}(void);" for *_, symbol in rows]
    lines += ["", "const struct proc procs[] = {"]
    ordered = sorted(rows, key=lambda row: (row[0].encode(), row[1] != "", row[2], row[3]))
    for base, flavour, since, symbol in ordered:
        lines.append(f'    {{"{base}", "{symbol}", {symbol}, {since}, {int(flavour != "")}}},')
    lines += ["};", "", f"const unsigned procs_count = {len(rows)};"]
    write(directory, "procs.c", lines)


def write_stubs(directory, rows):
    lines = ['#include "procs.h"', "",
             "#define STUB(name) \\",
             "    int name(void); \\",
             '    __attribute__((weak, visibility("default"))) int name(void) \\',
             "    { \\",
             "        return stub_refuse(#name); \\",
             "    }", ""]
    lines += [f"STUB({symbol})" for *_, symbol in rows]
    write(directory, "stubs.c", lines)


def write_abi(directory, rows):
    lines = ["#define __CUDA_API_VERSION_INTERNAL", f"#include <{HEADER}>", "",
             "#define ABI(symbol, type) \\",
             "    _Static_assert(__builtin_types_compatible_p(__typeof__(&symbol), type), \\",
             '                   #symbol " is not " #type)', ""]
    lines += [f"ABI({symbol}, PFN_{base}_v{since}{flavour});"
              for base, flavour, since, symbol in rows if since != NEVER]
    write(directory, "abi.c", lines)


def write_errors(directory, include):
    text = read(os.path.join(include, "cuda.h"))
    start = text.index("typedef enum cudaError_enum")
    body = re.sub(r"/\*.*?\*/", "", text[start:text.index("} CUresult", start)], flags=re.S)
    found = re.findall(r"\b(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)", body)
    write(directory, "errors.h", [f"ERROR({name}, {value})" for name, value in found])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--include", required=True, help="directory that holds cuda.h")
    parser.add_argument("--symbols", required=True, help="names of the exported symbols")
    parser.add_argument("--out", required=True, help="directory to write into")
    options = parser.parse_args()
    os.makedirs(options.out, exist_ok=True)
    exported = symbols(options.symbols)
    rows = match(typedefs(options.include, (HEADER, *MORE_HEADERS)), exported)
    write_procs(options.out, rows)
    write_stubs(options.out, rows)
    write_abi(options.out, match(typedefs(options.include, (HEADER,)), exported))
    write_errors(options.out, options.include)


if __name__ == "__main__":
    main()
