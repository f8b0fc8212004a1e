/*
 * copies: the directions of batches (see copies.h). A batch with one copy within the device waits
 * for its turn as a whole, as it is submitted as a whole. Runs on the program's threads, reads what
 * the program passed and nothing else.
 */
#include "copies.h"

bool copies_within_batch(const CUdeviceptr *to, const CUdeviceptr *from, size_t count)
{
    for (size_t i = 0; to && from && i < count; i++)
        if (copies_inside(to[i]) && copies_inside(from[i]))
            return true;
    return false;
}

static bool copies_operand_inside(const CUmemcpy3DOperand *operand)
{
    return operand->type == CU_MEMCPY_OPERAND_TYPE_ARRAY ||
           (operand->type == CU_MEMCPY_OPERAND_TYPE_POINTER && copies_inside(operand->op.ptr.ptr));
}

bool copies_within_3d_batch(const CUDA_MEMCPY3D_BATCH_OP *list, size_t count)
{
    for (size_t i = 0; list && i < count; i++)
        if (copies_operand_inside(&list[i].src) && copies_operand_inside(&list[i].dst))
            return true;
    return false;
}
