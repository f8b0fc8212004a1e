/*
 * physical: memory of the virtual memory management calls. A piece is charged once, when it is
 * made, and given back when nothing keeps it any more: no handle, no mapping, no tile of an array,
 * no binding to a multicast object. What was imported is charged to nobody. Program threads.
 */
#ifndef CUSLICE_HOOKS_PHYSICAL_H
#define CUSLICE_HOOKS_PHYSICAL_H

#include "driver.h"

struct physical;

/* cuMemCreate. */
CUresult physical_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                         const CUmemAllocationProp *prop, unsigned long long flags);

/* A handle is put: before the driver is asked, and with its answer. */
struct physical *physical_release(CUmemGenericAllocationHandle handle);
void physical_released(CUresult rc, CUmemGenericAllocationHandle handle, struct physical *memory);

/* A handle was got: one more of what is mapped at an address; one of another process's memory; one
 * of a multicast object, which has no memory but keeps what is bound to it. */
void physical_retained(CUresult rc, const CUmemGenericAllocationHandle *handle,
                       const void *address);
void physical_imported(CUresult rc, const CUmemGenericAllocationHandle *handle);
void physical_multicast(CUresult rc, const CUmemGenericAllocationHandle *handle);

/* Other processes may have it from now on. */
void physical_exported(CUresult rc, CUmemGenericAllocationHandle handle);

/* Mappings into the address space. */
void physical_mapped(CUresult rc, CUdeviceptr address, size_t bytes,
                     CUmemGenericAllocationHandle handle);
void physical_unmapped(CUresult rc, CUdeviceptr address, size_t bytes);

/* Tiles of sparse arrays and memory of arrays that are mapped later; the array's end. */
void physical_tiled(CUresult rc, const CUarrayMapInfo *list, unsigned count);
void physical_array_gone(const void *array);

/* A context has ended, and its arrays with it. */
void physical_context_gone(unsigned owner);

/* Bindings to a multicast object: of a handle's memory, of what is mapped at an address. */
void physical_bound(CUresult rc, CUmemGenericAllocationHandle multicast, size_t offset,
                    CUmemGenericAllocationHandle handle, size_t bytes);
void physical_bound_address(CUresult rc, CUmemGenericAllocationHandle multicast, size_t offset,
                            CUdeviceptr address, size_t bytes);
void physical_unbound(CUresult rc, CUmemGenericAllocationHandle multicast, size_t offset,
                      size_t bytes);

#endif
