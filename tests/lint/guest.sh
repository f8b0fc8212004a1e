#!/bin/sh
# A guest in somebody's process: it never ends the program, changes what the whole process shares, writes to
# stdout, goes by a clock that may jump, or reads its settings anywhere but in lib/config.c.
. tests/lint/common

FORBIDDEN='exit|_exit|_Exit|quick_exit|abort|__assert_fail|umask|setenv|unsetenv|putenv|clearenv|chdir|fchdir|signal|sigaction|setlocale|system|popen|printf|vprintf|puts|putchar|raise|kill|setpgid|setsid|daemon|longjmp|siglongjmp|setrlimit|nice|srand|strtok'

# Calls in the sources, comments left out. A name behind `.` or `->` is a member, as in real.cuInit.
calls() {
    pattern=$1
    shift
    for source in "$@"; do
        "${CC:-gcc}" -fpreprocessed -dD -E -P -x c "$source" 2>/dev/null |
            grep -oE "(^|[^A-Za-z0-9_.>])($pattern)[[:space:]]*\(" |
            sed "s|^|$source calls |"
    done
}

# What the library really asks of libc, whatever the sources look like.
undefined() {
    [ -f "$B/libcuslice.so" ] && [ -z "$SAN" ] || return 0
    nm -D -u "$B/libcuslice.so" | sed 's/.* //; s/@.*//' | grep -xE "$1"
}

# shellcheck disable=SC2046
check 'must not be called in a guest' calls "$FORBIDDEN|assert" $(guest_sources)
check 'libcuslice.so must not need' undefined "$FORBIDDEN|stdout|__printf_chk|__vprintf_chk"
# shellcheck disable=SC2046
check 'settings are read in lib/config.c only' calls 'getenv|secure_getenv' \
    $(guest_sources | grep -v '^lib/config\.c$')
check 'libcuslice.so must not need' undefined getenv

# The time of day may jump, and a wait until a time of day with it. lib/clock.c has the clock that does not.
BY_DAY='gettimeofday|time|ftime|timespec_get|pthread_timedjoin_np|pthread_cond_timedwait|pthread_mutex_timedlock|pthread_rwlock_timed[rw][a-z]*lock|sem_timedwait|mq_timed[a-z]*|settimeofday|alarm|setitimer'
# shellcheck disable=SC2046
check 'goes by the time of day' calls "$BY_DAY" $(guest_sources)
# shellcheck disable=SC2046
check 'goes by the time of day' grep -nwE 'CLOCK_(REALTIME|TAI)(_[A-Z]+)?' $(guest_sources)
check 'libcuslice.so must not need' undefined "$BY_DAY"
finish
