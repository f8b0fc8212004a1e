/* A shared object with nothing in it: what preloading anything at all adds to a program's start. */
int cuslice_bench_empty(void);

int cuslice_bench_empty(void)
{
    return 0;
}
