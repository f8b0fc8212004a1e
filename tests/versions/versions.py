"""Builds the library with each cuda.h that tests/versions/headers brings, under $B/headers, where
it is kept for the next time. Only the hooks are compiled: they alone know CUDA."""
import fcntl
import glob
import os
import re
import subprocess

B = os.environ["B"]
REPO = os.environ["REPO"]
PLACE = os.path.join(B, "headers")


def locked():
    """One at a time, whoever else runs this test's builds."""
    os.makedirs(PLACE, exist_ok=True)
    file = open(os.path.join(PLACE, "lock"), "w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def headers():
    """[(version, directory)]; empty where they cannot be had."""
    with locked():
        done = subprocess.run([os.path.join(REPO, "tests/versions/headers"), PLACE], text=True,
                              stdout=subprocess.PIPE)
    return [] if done.returncode else [line.split() for line in done.stdout.splitlines()]


def library(version, include, compiler="gcc"):
    """The path of the library compiled with this header."""
    place = os.path.join(PLACE, "%s-%s" % (version, compiler))
    target = os.path.join(place, "libcuslice.so")
    rooms = {room: " ".join(sorted(glob.glob(os.path.join(B, "obj", room, "*.o"))))
             for room in ("lib", "scheduler")}
    command = ["make", "-s", "B=" + place, "CC=" + compiler, "CUDA_INCLUDE=" + include,
               "SAN=" + os.environ.get("SAN", ""), "OPT=-O1",
               "OBJ_lib=" + rooms["lib"], "OBJ_scheduler=" + rooms["scheduler"], target]
    with locked():
        subprocess.run(command, cwd=REPO, text=True, check=True, stdout=subprocess.PIPE,
                       stderr=subprocess.STDOUT)
    return target


def exports(path):
    text = subprocess.run(["nm", "-D", "--defined-only", path], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    return {line.split()[-1] for line in text.splitlines()}


def rows():
    """The hooked names, as the preprocessor sees hooks.def."""
    text = subprocess.run(
        ["gcc", "-E", "-P", "-DROW(name,...)=HOOK name", "-DROW_VOID(name)=HOOK name",
         "-DCUDA_VERSION=99990", "-x", "c", os.path.join(REPO, "hooks/hooks.def")],
        text=True, check=True, stdout=subprocess.PIPE).stdout
    return set(re.findall(r"HOOK (\w+)", text))
