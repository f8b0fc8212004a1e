/*
 * What tells one simulated device from another, the same for the driver and for the management
 * library: UUID, name, place on the bus, compute capability. Constants by ordinal; any thread.
 */
#ifndef SIM_COMMON_IDENTITY_H
#define SIM_COMMON_IDENTITY_H

#include <stddef.h>

enum {
    IDENTITY_UUID = 16,
    IDENTITY_ARCH = 90, /* 10 * major + minor */
    IDENTITY_PROCESSORS = 132,
    IDENTITY_VENDOR = 0x10de,
    IDENTITY_PCI_DEVICE = 0x7fff10de, /* device and vendor; no product has it */
    IDENTITY_PCI_SUBSYSTEM = 0,
};

void identity_uuid(unsigned device, unsigned char uuid[IDENTITY_UUID]);
const char *identity_name(void);
/* Bus number; domain and function are 0, the slot is 0. */
unsigned identity_bus(unsigned device);
/* "0000:3B:00.0", or with eight digits of domain as the management library writes it. */
void identity_pci_text(unsigned device, int domain_digits, char *text, size_t size);
/* "GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx" */
void identity_uuid_text(unsigned device, char *text, size_t size);

#endif
