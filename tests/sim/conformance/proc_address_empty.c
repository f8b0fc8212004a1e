/* Rule: the empty name, which NVIDIA's runtime asks for first of all, is answered with
 * an error or with no function, never with one, and does not disturb later questions.
 * Source: public traces of the runtime's look-ups; no documentation.
 */
#include "client.h"

int main(void)
{
    struct client c;
    void *found = NULL;
    CUresult error;

    client_init(&c);
    error = cuGetProcAddress("", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL);
    CHECK(error == CUDA_SUCCESS || error == CUDA_ERROR_INVALID_VALUE ||
          error == CUDA_ERROR_NOT_FOUND, "the empty name returns %s", client_error_name(error));
    CHECK(!found, "the empty name has a function at %p", found);
    CHECK_CU(cuGetProcAddress("cuInit", &found, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    CHECK(found == client_symbol("cuInit"), "cuInit is at %p", found);
    client_pass("the empty name returned %s and no function", client_error_name(error));
}
