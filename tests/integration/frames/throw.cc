// A C++ exception for frames_client.c, which is C: thrown here, caught here, through what lies
// between.
extern "C" void frames_throw(void)
{
    throw 1;
}

extern "C" int frames_catch(void (*call)(void))
{
    try {
        call();
    } catch (int) {
        return 1;
    }
    return 0;
}
