/*
 * What tells one simulated device from another. The UUIDs carry the version and variant bits of
 * random ones, as a GPU's do; the last byte is the ordinal.
 */
#include <stdio.h>
#include <string.h>

#include "identity.h"

enum { IDENTITY_FIRST_BUS = 0x10 };

void identity_uuid(unsigned device, unsigned char uuid[IDENTITY_UUID])
{
    static const unsigned char base[IDENTITY_UUID] = {
        0x51, 0x3c, 0x0d, 0xa0, 0x77, 0x1e, 0x4c, 0x2b, 0x9a, 0x64, 0, 0, 0, 0, 0, 0,
    };

    memcpy(uuid, base, IDENTITY_UUID);
    uuid[15] = (unsigned char)device;
}

const char *identity_name(void)
{
    return "simcuda device";
}

unsigned identity_bus(unsigned device)
{
    return IDENTITY_FIRST_BUS + device;
}

void identity_pci_text(unsigned device, int domain_digits, char *text, size_t size)
{
    snprintf(text, size, "%0*X:%02X:00.0", domain_digits, 0, identity_bus(device));
}

void identity_uuid_text(unsigned device, char *text, size_t size)
{
    unsigned char u[IDENTITY_UUID];

    identity_uuid(device, u);
    snprintf(text, size, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
             u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13],
             u[14], u[15]);
}
